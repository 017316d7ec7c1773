#pragma once

#include "kernels/cuda/stream_tiles.cuh"

/// Attention backward on Hopper, keys along rows: one warpgroup takes 64 keys (with a direct bias a
/// tile of grid rows, see StreamColumns), walks over all queries and gathers dk and dv. No bias, or
/// the direct form.
namespace sape2::kernels::cuda {

template <BiasForm Form>
struct StreamKeysLayout {
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kColumns = kStreamColumns<Form>;
  static constexpr int kStages = 2;
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
/// every other grid row of the block's keys, from `first_y` on.
template <class T, int Rows>
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
      y[i] = first_y + 2 * i <= last_y ? widen(from[first_y + 2 * i]) : 0.0F;
  }
};

/// x of a tile of queries at the places of eight keys: pairs of queries 2t, 2t+1 for key g, eight
/// queries after eight.
template <class T>
__device__ void queries_x(std::uint32_t (&pairs)[8], const Tile<T>& x, int first_entry) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(pairs[4 * half]), "=r"(pairs[4 * half + 1]), "=r"(pairs[4 * half + 2]),
                   "=r"(pairs[4 * half + 3])
                 : "r"(shared_address(x.piece(32 * half + lane, first_entry / 8))));
}

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
  const Tile<T> k_rows{rows, kRowTile, 64}, v_rows{rows + kStreamTile, kRowTile, 64};
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
      copy_box(k_rows.data, own.in_grid ? params.k : params.k_prefix, box, rows_arrived);
      copy_box(v_rows.data, own.in_grid ? params.v : params.v_prefix, box, rows_arrived);
    } else {
      expect_bytes(rows_arrived, Layout::kRowBytes);
      copy_box(k_rows.data, params.k_rows, block.tokens(first_row), rows_arrived);
      copy_box(v_rows.data, params.v_rows, block.tokens(first_row), rows_arrived);
    }
    for (int tile = 0; tile < min(Layout::kStages, tiles); ++tile) load_tile(tile);
  }

  const float scale = p.scale * kLog2E;
  const float factor = Form == BiasForm::none
                           ? 0.0F
                           : per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F);
  // Where the eight keys of each half of the warp's rows stand, and which shift they take.
  [[maybe_unused]] int entry[2] = {0, 0}, shift_row[2] = {0, 0};
  [[maybe_unused]] float x_factor[2] = {0.0F, 0.0F};
  if constexpr (kDirect) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int slot = warp * 16 + half * 8, down = slot / keys.part_width;
      const bool patches =
          own.in_grid && down < keys.rows_per_tile && own.first_row + down < keys.down;
      entry[half] = patches ? slot - down * keys.part_width : 0;
      shift_row[half] = patches ? down : Layout::kShifts - 1;
      x_factor[half] = patches ? factor * kLog2E : 0.0F;
    }
  }
  // A thread takes one query and, of a direct bias's up to eight grid rows, every other one.
  static_assert(!kDirect || kThreads == 2 * kColumns);
  const int first_y = own.first_row + threadIdx.x / kColumns;
  const int last_y =
      kDirect && own.in_grid ? min(own.first_row + keys.rows_per_tile, keys.down) - 1 : -1;
  constexpr int kRowsY = kDirect && Wide == 0 ? 4 : 1;
  using Notes = QueryNotes<T, kRowsY>;
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
        if (first_y + 2 * i <= last_y)
          to[(threadIdx.x / kColumns + 2 * i) * kColumns + column] =
              fmaf(factor * kLog2E, query.y[i], -query.lse);
    }
  };
  const auto query_notes = [&](int tile) {
    return Notes(params.base, block.batch_head, tile * kColumns + threadIdx.x % kColumns, first_y,
                 last_y);
  };

  note(0, query_notes(0));
  float dk[8][4] = {}, dv[8][4] = {};
  wait_for_boxes(rows_arrived, 0);
  __syncthreads();
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % Layout::kStages;
    wait_for_boxes(arrived + stage, tile / Layout::kStages);

    float weight[kPieces][4], gradient[kPieces][4];
    begin_products();
    start_row_product(weight, k_rows, tile_of(stage, 0));
    commit_products();
    start_row_product(gradient, v_rows, tile_of(stage, 1));
    commit_products();
    const Notes next = query_notes(tile + 1);
    const float* const own_notes = notes + tile % 2 * Layout::kNotes + 2 * lane.t;
    wait_for_products<1>();
    hold(weight);

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      [[maybe_unused]] std::uint32_t x[8];
      if constexpr (kDirect) queries_x(x, tile_of(stage, 2), entry[half]);
      const float* const shifts = own_notes + shift_row[half] * kColumns;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        float2 shift = *reinterpret_cast<const float2*>(shifts + piece * 8);
        if constexpr (kDirect) {
          const float2 along_x = unpack<T>(x[piece]);
          shift.x = fmaf(x_factor[half], along_x.x, shift.x);
          shift.y = fmaf(x_factor[half], along_x.y, shift.y);
        }
        weight[piece][2 * half] = power_of_2(fmaf(weight[piece][2 * half], scale, shift.x));
        weight[piece][2 * half + 1] = power_of_2(fmaf(weight[piece][2 * half + 1], scale, shift.y));
      }
    }
    FragmentA<T> fragments[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) fragments[k] = as_a<T>(weight[2 * k], weight[2 * k + 1]);

    wait_for_products<0>();
    hold(gradient);
    hold(dv);
    begin_products();
    start_column_product<T>(dv, fragments, tile_of(stage, 1));
    commit_products();
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float2 delta =
          *reinterpret_cast<const float2*>(own_notes + Layout::kShifts * kColumns + piece * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - (e % 2 ? delta.y : delta.x));
    }
    FragmentA<T> dfragments[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
      dfragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    hold(dk);
    begin_products();
    start_column_product<T>(dk, dfragments, tile_of(stage, 0));
    commit_products();
    if (tile + 1 < tiles) note(tile + 1, next);
    wait_for_products<0>();
    hold(dk);
    hold(dv);
    __syncthreads();
    if (threadIdx.x == 0 && tile + Layout::kStages < tiles) load_tile(tile + Layout::kStages);
  }

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
