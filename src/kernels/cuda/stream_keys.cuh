#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream_direct.cuh"

/// Attention backward on Hopper, keys along rows: one warpgroup takes 64 keys (with a direct bias
/// eights of grid rows, see StreamEights), walks over all queries and gathers dk and dv. No bias,
/// or the direct form.
namespace sape2::kernels::cuda {

template <BiasForm Form>
struct StreamKeysLayout {
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kColumns = kStreamColumns;
  static constexpr int kStages = kDirect ? 2 : 3;
  static constexpr int kTileBytes = kColumns * 128;
  // Of the tile's queries: q, dout; x; y of the eight grid rows among which the block's are; pairs
  // of log2(Σ e^logit) and dout · out.
  static constexpr int kX = 2 * kTileBytes, kY = kX + (kDirect ? kTileBytes : 0);
  static constexpr int kYBytes = kDirect ? kColumns * 16 : 0;
  static constexpr int kNotes = kY + kYBytes, kNoteBytes = kColumns * 8;
  static constexpr int kCopied = kNotes + kNoteBytes;
  static constexpr int kStageBytes = round_up(kCopied, kSharedAlignment);
  static constexpr int kRowBytes = 2 * kStreamTile;  // k, v
  static constexpr int kBytes =
      kSharedAlignment + kRowBytes + kStages * kStageBytes + (kStages + 1) * 8;
};

/// The bias of a warp's 16 keys, whose eights each stand in one grid row, and a tile of queries:
/// products of what each key takes of a query's vectors with those vectors.
template <class T>
struct KeysBias {
  std::uint32_t x_address, y_address;  // of this lane's row in the first tile
  // Of A: the ratio where a key takes from, its high part and what that lacks.
  FragmentA<T> x[2];  // the first eight keys' place and the second's
  std::uint32_t y[2][2];
  bool in_two_parts;

  __device__ KeysBias(float ratio, const StreamEights& keys, int tile, const unsigned char* tile_x,
                      const unsigned char* tile_y) {
    const Lane lane;
    const InTwoParts<T> parts(ratio);
    in_two_parts = parts.low != 0.0F;
    int place[2];  // along the grid row, in pieces of eight
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto own = keys.place(tile, threadIdx.x / 32 * 2 + half);
      const bool patches = own.in_grid && own.row < keys.down;
      place[half] = patches ? own.column / 8 : 0;
      const int down = patches ? own.row % 8 : -1;  // among the eight of y
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float value = part == 0 ? parts.high : parts.low;
        x[part].r[half] = x[part].r[2 + half] = 0;
        x[part].r[3 * half] = patches ? on_diagonal<T>(value) : 0;
        y[part][half] =
            pack<T>(down == 2 * lane.t ? value : 0.0F, down == 2 * lane.t + 1 ? value : 0.0F);
      }
    }
    // Lanes 0 … 7 and 16 … 23 give queries' rows at the first eight keys' place, the others at the
    // second's; of y, 32 queries' rows.
    const int number = threadIdx.x % 32, query = number / 16 * 8 + number % 8;
    x_address = shared_address(tile_x) + query * 128 +
                ((number / 8 % 2 ? place[1] : place[0]) ^ query % 8) * 16;
    y_address = shared_address(tile_y) + number * 16;
  }
  __device__ void start(float (&c)[8][4], int offset) const {
    add<true>(c, offset, x[0], y[0]);
    if (in_two_parts) add<false>(c, offset, x[1], y[1]);
  }
  template <bool First>
  __device__ void add(float (&c)[8][4], int offset, const FragmentA<T>& by_x,
                      const std::uint32_t (&by_y)[2]) const {
    constexpr float kNothing[4] = {};
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      std::uint32_t queries[4];
      load_pieces(queries, y_address + offset + four * 32 * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (First) {
          multiply_onto<T>(c[4 * four + i], by_y[0], by_y[1], queries[i], kNothing);
        } else {
          multiply_add_eight<T>(c[4 * four + i], by_y[0], by_y[1], queries[i]);
        }
      }
    }
#pragma unroll
    for (int piece = 0; piece < 8; piece += 2) {
      std::uint32_t queries[4];
      load_pieces(queries, x_address + offset + piece * 1024);
      multiply_add<T>(c[piece], by_x, {queries[0], queries[1]});
      multiply_add<T>(c[piece + 1], by_x, {queries[2], queries[3]});
    }
  }
};

template <class T, BiasForm Form>
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
  const auto& keys = params.eights;
  const int row_tiles = kDirect ? keys.tiles : g.padded_tokens / kRowTile;
  const int tiles = (g.tokens + kColumns - 1) / kColumns;
  const StreamBlock block(g, row_tiles);
  const Lane lane;
  const int warp = threadIdx.x / 32;

  unsigned char* const rows = aligned_shared(unaligned);
  unsigned char* const stages = rows + Layout::kRowBytes;
  CopyBarrier* const arrived =
      reinterpret_cast<CopyBarrier*>(stages + Layout::kStages * Layout::kStageBytes);
  CopyBarrier* const rows_arrived = arrived + Layout::kStages;
  const Tile<T> k_rows{rows, kRowTile, 64}, v_rows{rows + kStreamTile, kRowTile, 64};
  const auto tile_of = [&](int stage, int index) {
    return Tile<T>{stages + stage * Layout::kStageBytes + index * Layout::kTileBytes, kColumns, 64};
  };

  StreamEights::Place own{};  // of the first eight
  if constexpr (kDirect) own = keys.place(block.row_tile, 0);
  const int first_row = block.row_tile * kRowTile;
  // The launch before makes them.
  const auto load_notes = [&](int tile) {
    const int stage = tile % Layout::kStages;
    copy_box(stages + stage * Layout::kStageBytes + Layout::kNotes, params.notes,
             block.notes(tile * kColumns, 2), arrived + stage);
  };
  // Each warp starts a share of a tile's copies.
  const auto load_tile = [&](int tile, int share) {
    const int stage = tile % Layout::kStages, first = tile * kColumns;
    unsigned char* const to = stages + stage * Layout::kStageBytes;
    CopyBarrier* const barrier = arrived + stage;
    if (share == 0) {
      expect_bytes(barrier, Layout::kCopied);
      copy_box(to, params.q, block.tokens(first), barrier);
    } else if (share == 1) {
      copy_box(to + Layout::kTileBytes, params.dout, block.tokens(first), barrier);
    } else if (share == 2) {
      if constexpr (kDirect)
        copy_box(to + Layout::kY, params.y_eight, block.vectors(first, own.row / 8 * 8), barrier);
    } else if constexpr (kDirect) {
      copy_box(to + Layout::kX, params.x, block.vectors(first, own.part * keys.part_width),
               barrier);
    }
  };
  if (threadIdx.x == 0) {
    prefetch_maps(params.k_rows, params.v_rows, params.q, params.dout, params.notes);
    if constexpr (kDirect) prefetch_maps(params.x, params.y_eight);
    for (int i = 0; i <= Layout::kStages; ++i) prepare_barrier(arrived + i);
  }
  publish_to_copy_engine();
  __syncthreads();
  if (threadIdx.x == 0) {
    expect_bytes(rows_arrived, Layout::kRowBytes);
    if constexpr (!kDirect) {
      copy_box(k_rows.data, params.k_rows, block.tokens(first_row), rows_arrived);
      copy_box(v_rows.data, params.v_rows, block.tokens(first_row), rows_arrived);
    }
  }
  if (threadIdx.x % 32 == 0) {
    // An eight's last rows may be other keys', and nobody reads what comes of them.
    if constexpr (kDirect)
      for (int eight = 2 * warp; eight < 2 * warp + 2; ++eight) {
        const auto box = block.tokens(keys.first_token(keys.place(block.row_tile, eight)));
        copy_box(k_rows.data + eight * 1024, params.k_rows, box, rows_arrived);
        copy_box(v_rows.data + eight * 1024, params.v_rows, box, rows_arrived);
      }
    for (int tile = 0; tile < min(Layout::kStages, tiles); ++tile) load_tile(tile, warp);
  }
  wait_for_previous();
  if (threadIdx.x == 0)
    for (int tile = 0; tile < min(Layout::kStages, tiles); ++tile) load_notes(tile);

  const float scale = p.scale * kLog2E;
  [[maybe_unused]] const KeysBias<T> bias(kDirect ? bias_ratio(p, block.head) : 0.0F, keys,
                                          block.row_tile, stages + Layout::kX, stages + Layout::kY);
  float weight[kPieces][4], gradient[kPieces][4], dk[8][4] = {}, dv[8][4] = {};
  FragmentA<T> fragments[kPieces / 2], dfragments[kPieces / 2];
  const auto prepare_scores = [&](int tile) {
    const int stage = tile % Layout::kStages;
    wait_for_boxes(arrived + stage, tile / Layout::kStages);
    hold(weight);
    if constexpr (kDirect) {
      bias.start(weight, stage * Layout::kStageBytes);
      hold(weight);
    }
  };
  // Of two neighbouring queries, log2(Σ e^logit) and dout · out.
  const auto note = [&](int stage, int piece) {
    return reinterpret_cast<const float4*>(stages + stage * Layout::kStageBytes +
                                           Layout::kNotes)[piece * 4 + lane.t];
  };
  // Half a tile's log2(Σ e^logit), read before products start: beside those memory answers slowly.
  float shifts[kPieces / 2][2];
  const auto read_shifts = [&](int stage, int first_piece) {
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i) {
      const float4 pair = note(stage, first_piece + i);
      shifts[i][0] = pair.x;
      shifts[i][1] = pair.z;
    }
  };
  const auto weigh = [&](int first_piece) {
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = weight[first_piece + i][e];
        score = power_of_2(fmaf(score, scale, -shifts[i][e % 2]));
      }
    hold(weight);
  };
  // The second half of a tile: its gradients, which had to wait for the registers of the last
  // tile's fragments. Weights and their gradients become fragments together, so that few numbers
  // wait at once.
  const auto make_fragments = [&](int stage, int tile_to_load) {
    read_shifts(stage, kPieces / 2);
    begin_products();
    start_row_product(gradient, v_rows, tile_of(stage, 1));
    commit_products();
    if (lane.g == 0 && lane.t == 0 && tile_to_load < tiles) {
      load_tile(tile_to_load, warp);
      if (warp == 2) load_notes(tile_to_load);
    }
    weigh(kPieces / 2);
    wait_for_products<0>();
    hold(gradient);
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
#pragma unroll
      for (int piece = 2 * k; piece < 2 * k + 2; ++piece) {
        const float4 pair = note(stage, piece);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - (e % 2 ? pair.w : pair.y));
      }
      fragments[k] = as_a<T>(weight[2 * k], weight[2 * k + 1]);
      dfragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    }
  };

  wait_for_boxes(rows_arrived, 0);
  prepare_scores(0);
  read_shifts(0, 0);
  begin_products();
  start_row_product<4, kDirect>(weight, k_rows, tile_of(0, 0));
  end_products();
  hold(weight);
  weigh(0);
  make_fragments(0, tiles);
  for (int tile = 1; tile < tiles; ++tile) {
    const int stage = tile % Layout::kStages, before = (tile - 1) % Layout::kStages;
    prepare_scores(tile);
    read_shifts(stage, 0);
    hold(dv);
    hold(dk);
    begin_products();
    start_row_product<4, kDirect>(weight, k_rows, tile_of(stage, 0));
    commit_products();
    start_column_product<T>(dv, fragments, tile_of(before, 1));
    start_column_product<T>(dk, dfragments, tile_of(before, 0));
    commit_products();
    wait_for_products<1>();
    hold(weight);
    weigh(0);
    wait_for_products<0>();
    hold(dk);
    hold(dv);
    keep(fragments);
    keep(dfragments);
    __syncthreads();
    make_fragments(stage, tile - 1 + Layout::kStages);
  }
  if constexpr (kDirect) let_next_begin();
  hold(dv);
  hold(dk);
  begin_products();
  start_column_product<T>(dv, fragments, tile_of((tiles - 1) % Layout::kStages, 1));
  start_column_product<T>(dk, dfragments, tile_of((tiles - 1) % Layout::kStages, 0));
  end_products();
  hold(dk);
  hold(dv);

  const auto token_of = [&](int slot) {
    if constexpr (kDirect) return keys.token(keys.place(block.row_tile, slot / 8), slot % 8);
    return first_row + slot < g.tokens ? first_row + slot : -1;
  };
  __syncthreads();  // nobody reads k and v any more
  store_rows(params.base.dk, block, g.head_size, k_rows, dk, p.scale, token_of);
  store_rows(params.base.dv, block, g.head_size, v_rows, dv, 1.0F, token_of);
#endif
}

}  // namespace sape2::kernels::cuda
