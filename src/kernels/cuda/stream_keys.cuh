#pragma once

#include "kernels/cuda/stream_direct.cuh"

/// Attention backward on Hopper, keys along rows: one warpgroup takes 64 keys (with a direct bias a
/// tile of grid rows, see StreamColumns), walks over all queries and gathers dk and dv. No bias, or
/// the direct form.
namespace sape2::kernels::cuda {

template <BiasForm Form>
struct StreamKeysLayout {
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kColumns = kKeysColumns;
  static constexpr int kStages = 4;
  static constexpr int kTileBytes = kColumns * 128;
  static constexpr int kStageBytes = (kDirect ? 3 : 2) * kTileBytes;
  static constexpr int kRowBytes = 2 * kStreamTile;  // k, v
  // Of the columns, a tile ahead, two buffers: −log2(Σ e^logit) plus the y part of the bias for up
  // to eight grid rows, the same without bias, dout · out.
  static constexpr int kShifts = kDirect ? 9 : 1;
  static constexpr int kNotes = (kShifts + 1) * kColumns;
  static constexpr int kNoteBytes = 2 * kNotes * 4;
  static constexpr int kBytes =
      kSharedAlignment + kRowBytes + kStages * kStageBytes + kNoteBytes + (kStages + 1) * 8;
};

/// What keys need to know of one query, read one tile ahead; of its y, `Rows` numbers: those of
/// every `Step`-th grid row of the block's keys, from `first_y` on.
template <class T, int Rows, int Step>
struct QueryNotes {
  float lse, delta;  // log2(Σ e^logit), dout · out
  float y[Rows];

  __device__ QueryNotes(const BackwardParams& p, std::int64_t batch_head, int token, int first_y,
                        int last_y) {
    const auto& f = p.forward;
    const std::int64_t place =
        batch_head * f.geometry.padded_tokens + min(token, f.geometry.padded_tokens - 1);
    const float2 pair = reinterpret_cast<const float2*>(p.delta)[place];
    lse = pair.x;
    delta = pair.y;
    const T* const from = static_cast<const T*>(f.vectors.y) + place * f.vectors.width_y;
#pragma unroll
    for (int i = 0; i < Rows; ++i)
      y[i] = first_y + Step * i <= last_y ? widen(from[first_y + Step * i]) : 0.0F;
  }
};

/// The x part of the bias of 16 keys, whose eights stand at two places along the grid's rows, and a
/// tile of queries.
template <class T>
struct KeysX {
  int place[2];       // in pieces of eight entries
  FragmentA<T> keys;  // one diagonal for each eight, 0 where they are no patches
  FragmentA<T> keys_low;
  bool split;

  __device__ KeysX(float ratio, const int (&places)[2], const bool (&patches)[2]) {
    const Diagonal<T> diagonal(ratio);
    split = diagonal.split;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      place[half] = places[half];
      keys.r[3 * half] = patches[half] ? diagonal.high : 0;
      keys_low.r[3 * half] = patches[half] ? diagonal.low : 0;
      keys.r[1 + half] = keys_low.r[1 + half] = 0;
    }
  }
  template <int Pieces>
  __device__ void start(float (&c)[Pieces][4], const Tile<T>& x) const {
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[piece][e] = 0.0F;
    add(c, x, keys);
    if (split) add(c, x, keys_low);
  }
  template <int Pieces>
  __device__ void add(float (&c)[Pieces][4], const Tile<T>& x,
                      const FragmentA<T>& diagonals) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int piece = 0; piece < Pieces; piece += 2) {
      std::uint32_t queries[4];
      load_pieces(queries, x.piece(piece * 8 + lane / 16 * 8 + lane % 8,
                                   lane / 8 % 2 ? place[1] : place[0]));
#pragma unroll
      for (int i = 0; i < 2; ++i)
        multiply_add<T>(c[piece + i], diagonals, {queries[2 * i], queries[2 * i + 1]});
    }
  }
};

template <class T, BiasForm Form, int Wide>
__global__ void __launch_bounds__(kThreads, 3)
    stream_keys_kernel(const __grid_constant__ StreamBackward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = StreamKeysLayout<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr int kColumns = Layout::kColumns, kPieces = kColumns / 8;
  extern __shared__ unsigned char unaligned[];
  const AttentionParams& p = params.base.forward;
  const auto& g = p.geometry;
  const auto& keys = params.columns;
  const int row_tiles = kDirect ? keys.tiles : g.padded_tokens / kRowTile;
  const int tiles = (g.tokens + kColumns - 1) / kColumns;
  const StreamBlock block(g, row_tiles);
  const Lane lane;
  const int warp = threadIdx.x / 32;

  unsigned char* const rows = aligned_shared(unaligned);
  unsigned char* const stages = rows + Layout::kRowBytes;
  float* const notes = reinterpret_cast<float*>(stages + Layout::kStages * Layout::kStageBytes);
  CopyBarrier* const arrived =
      reinterpret_cast<CopyBarrier*>(reinterpret_cast<char*>(notes) + Layout::kNoteBytes);
  CopyBarrier* const rows_arrived = arrived + Layout::kStages;
  ProductRows<T, true> k_rows{{rows, kRowTile, 64}, {}};
  ProductRows<T, false> v_rows{{rows + kStreamTile, kRowTile, 64}, {}};
  const auto tile_of = [&](int stage, int index) {
    return Tile<T>{stages + stage * Layout::kStageBytes + index * Layout::kTileBytes, kColumns, 64};
  };

  StreamColumns::Place own{};
  if constexpr (kDirect) own = keys.place(block.row_tile);
  const int first_row = block.row_tile * kRowTile;
  const auto load_tile = [&](int tile) {
    const int stage = tile % Layout::kStages, first = tile * kColumns;
    CopyBarrier* const barrier = arrived + stage;
    expect_bytes(barrier, Layout::kStageBytes);
    copy_box(tile_of(stage, 0).data, params.q_columns, block.tokens(first), barrier);
    copy_box(tile_of(stage, 1).data, params.dout_columns, block.tokens(first), barrier);
    if constexpr (kDirect) {
      const int part = own.in_grid ? own.part : 0;
      copy_box(tile_of(stage, 2).data, params.x_columns,
               block.vectors(first, part * keys.part_width), barrier);
    }
  };
  if (kDirect && keys.part_width * keys.rows_per_tile < kRowTile)
    clear_shared(rows, Layout::kRowBytes);
  if (threadIdx.x == 0)
    for (int i = 0; i <= Layout::kStages; ++i) prepare_barrier(arrived + i);
  publish_to_copy_engine();
  __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (kDirect) {
      const auto box = keys_box(block, keys, own, kRowTile);
      expect_bytes(rows_arrived, 2 * keys_box_bytes(keys, own, kRowTile));
      copy_box(k_rows.tile.data, own.in_grid ? params.k : params.k_prefix, box, rows_arrived);
      copy_box(v_rows.tile.data, own.in_grid ? params.v : params.v_prefix, box, rows_arrived);
    } else {
      expect_bytes(rows_arrived, Layout::kRowBytes);
      copy_box(k_rows.tile.data, params.k_rows, block.tokens(first_row), rows_arrived);
      copy_box(v_rows.tile.data, params.v_rows, block.tokens(first_row), rows_arrived);
    }
    for (int tile = 0; tile < min(Layout::kStages, tiles); ++tile) load_tile(tile);
  }

  const float scale = p.scale * kLog2E;
  [[maybe_unused]] const float factor = kDirect ? bias_factor(p, block.head) * kLog2E : 0.0F;
  // Where the eight keys of each half of the warp's rows stand, and which shift they take.
  int shift_row[2] = {0, 0}, place[2] = {0, 0};
  bool patches[2] = {false, false};
  if constexpr (kDirect) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int slot = warp * 16 + half * 8, down = slot / keys.part_width;
      patches[half] = own.in_grid && down < keys.rows_per_tile && own.first_row + down < keys.down;
      place[half] = patches[half] ? (slot - down * keys.part_width) / 8 : 0;
      shift_row[half] = patches[half] ? down : Layout::kShifts - 1;
    }
  }
  [[maybe_unused]] const KeysX<T> keys_x(kDirect ? bias_ratio(p, block.head) : 0.0F, place,
                                         patches);
  // A thread takes one query and, of a direct bias's up to eight grid rows, every so many-th.
  constexpr int kStepY = kThreads / kColumns;
  const int first_y = own.first_row + threadIdx.x / kColumns;
  const int last_y =
      kDirect && own.in_grid ? min(own.first_row + keys.rows_per_tile, keys.down) - 1 : -1;
  constexpr int kRowsY = kDirect && Wide == 0 ? 8 / kStepY : 1;
  using Notes = QueryNotes<T, kRowsY, kStepY>;
  const auto note = [&](int tile, const Notes& query) {
    float* const to = notes + tile % 2 * Layout::kNotes;
    const int column = threadIdx.x % kColumns;
    if (threadIdx.x < kColumns) {
      to[(Layout::kShifts - 1) * kColumns + column] = -query.lse;
      to[Layout::kShifts * kColumns + column] = query.delta;
    }
    if constexpr (kDirect) {
#pragma unroll
      for (int i = 0; i < kRowsY; ++i)
        if (first_y + kStepY * i <= last_y)
          to[(threadIdx.x / kColumns + kStepY * i) * kColumns + column] =
              fmaf(factor, query.y[i], -query.lse);
    }
  };
  const auto query_notes = [&](int tile) {
    return Notes(params.base, block.batch_head, tile * kColumns + threadIdx.x % kColumns, first_y,
                 last_y);
  };

  note(0, query_notes(0));
  float dk[8][4] = {}, dv[8][4] = {};
  wait_for_boxes(rows_arrived, 0);
  k_rows.load();
  v_rows.load();
  __syncthreads();
  const auto await_tile = [&](int tile) {
    wait_for_boxes(arrived + tile % Layout::kStages, tile / Layout::kStages);
  };
  await_tile(0);
  float weight[kPieces][4];
  if constexpr (kDirect) keys_x.start(weight, tile_of(0, 2));
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % Layout::kStages;

    float gradient[kPieces][4];
    begin_products();
    k_rows.template start<kDirect>(weight, tile_of(stage, 0));
    commit_products();
    v_rows.start(gradient, tile_of(stage, 1));
    commit_products();
    const Notes next = query_notes(tile + 1);
    const float* const own_notes = notes + tile % 2 * Layout::kNotes + 2 * lane.t;
    wait_for_products<1>();  // and for those of the tile before
    hold(weight);
    hold(dk);
    hold(dv);
    __syncthreads();
    if (threadIdx.x == 0 && tile > 0 && tile - 1 + Layout::kStages < tiles)
      load_tile(tile - 1 + Layout::kStages);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const shifts = own_notes + shift_row[half] * kColumns;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const float2 shift = *reinterpret_cast<const float2*>(shifts + piece * 8);
        weight[piece][2 * half] = power_of_2(fmaf(weight[piece][2 * half], scale, shift.x));
        weight[piece][2 * half + 1] = power_of_2(fmaf(weight[piece][2 * half + 1], scale, shift.y));
      }
    }
    wait_for_products<0>();
    hold(gradient);
    // Weights and their gradients become fragments together, so that few numbers wait at once.
    FragmentA<T> fragments[kPieces / 2], dfragments[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
#pragma unroll
      for (int piece = 2 * k; piece < 2 * k + 2; ++piece) {
        const float2 delta =
            *reinterpret_cast<const float2*>(own_notes + Layout::kShifts * kColumns + piece * 8);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[piece][e] =
              weight[piece][e] * (gradient[piece][e] - (e % 2 ? delta.y : delta.x));
      }
      fragments[k] = as_a<T>(weight[2 * k], weight[2 * k + 1]);
      dfragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    }
    if (tile + 1 < tiles) {
      await_tile(tile + 1);
      if constexpr (kDirect) {
        // The next tile's bias; once the products below have begun, it would have to wait for them.
        hold(weight);
        keys_x.start(weight, tile_of((tile + 1) % Layout::kStages, 2));
        hold(weight);
      }
    }
    begin_products();
    start_column_product<T>(dv, fragments, tile_of(stage, 1));
    start_column_product<T>(dk, dfragments, tile_of(stage, 0));
    commit_products();
    if (tile + 1 < tiles) note(tile + 1, next);
  }
  wait_for_products<0>();
  hold(dk);
  hold(dv);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = warp * 16 + lane.g + 8 * half;
    int token = first_row + slot < g.tokens ? first_row + slot : -1;
    if constexpr (kDirect) token = keys.token(own, slot, kRowTile);
    if (token < 0) continue;
    if (params.base.dk.data != nullptr)
      store_row(head_of<T>(params.base.dk, block.image, block.head).row(token), dk, half, p.scale,
                g.head_size, g.aligned);
    if (params.base.dv.data != nullptr)
      store_row(head_of<T>(params.base.dv, block.image, block.head).row(token), dv, half, 1.0F,
                g.head_size, g.aligned);
  }
#endif
}

}  // namespace sape2::kernels::cuda
