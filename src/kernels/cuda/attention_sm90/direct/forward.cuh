#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/square_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/lazy_softmax.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention forward on Hopper without bias or with a direct one: one warpgroup takes 64 queries of
/// a head and walks over all keys.
namespace sape2::kernels::cuda::sm90 {

template <BiasForm Form>
struct ForwardSmem {
  static constexpr int kKStages = 2, kVStages = 2;
  static constexpr int kRingBytes = (kKStages + kVStages) * kTileBytes;
  static constexpr int kBarriers = kKStages + kVStages + 1;
  // Places from the beginning; panels, whose number is known at run time only, come last.
  static constexpr int kRings = kTileBytes, kArrived = kRings + kRingBytes;
  static constexpr int kPanels = round_up(kArrived + kBarriers * 8, kSharedAlignment);
  __host__ __device__ static int y_panels(const KeyTiling& columns) {
    return Form == BiasForm::direct ? (columns.down + 63) / 64 : 0;
  }
  __host__ __device__ static int bytes(const KeyTiling& columns) {
    return kPanels + y_panels(columns) * kTileBytes;
  }
};

/// Weights from scores and what is added to logits · log2(e), by rows, piece after piece: `Terms`.
struct ScoreSoftmax : LazySoftmax {
  float scale;  // from score to logit · log2(e)

  __device__ explicit ScoreSoftmax(float s) : scale(s) {}

  template <int Pieces, class Terms>
  __device__ void weigh_tile(float (&weights)[Pieces][4], const float (&scores)[Pieces][4],
                             Terms terms) {
    begin_tile();
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece) {
      float base[2] = {shift[0], shift[1]};
      if constexpr (!std::is_same_v<Terms, NoTerms>) {
        terms.next(base);
        base[0] += shift[0];
        base[1] += shift[1];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights[piece][e] = weigh(fmaf(scores[piece][e], scale, base[e / 2]), e);
    }
  }
  template <int Pieces, class Terms>
  __device__ void follow(const float (&scores)[Pieces][4], Terms terms, float (&out)[8][4]) {
    float greatest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece) {
      float base[2];
      terms.next(base);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        greatest[e / 2] = fmaxf(greatest[e / 2], fmaf(scores[piece][e], scale, base[e / 2]));
    }
    move(greatest, out);
  }
};

/// What tiles of keys are: grid rows, or squares (SquareBias). Unless any may be, tiles of the grid
/// are all there is, none of them lacks a token, and from bias to scores is a number of type T.
enum class KeyTiles { any_rows, whole_rows, whole_squares };

/// Blocks a multiprocessor: as many as registers allow.
template <BiasForm Form, int Wide, KeyTiles Tiles>
inline constexpr int kForwardBlocks =
    Form == BiasForm::none || Tiles == KeyTiles::whole_squares || kTilePieces<Wide> < 8 ? 4 : 3;

template <class T, BiasForm Form, int Wide, KeyTiles Tiles>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<Form, Wide, Tiles>)
    forward_kernel(const __grid_constant__ ForwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = ForwardSmem<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr bool kInSquares = Tiles == KeyTiles::whole_squares, kByRows = kDirect && !kInSquares;
  constexpr bool kWholeRows = Tiles == KeyTiles::whole_rows;
  constexpr int kPieces = kByRows ? kTilePieces<Wide> : 8;
  extern __shared__ __align__(kSharedAlignment) unsigned char forward_memory[];
  const AttentionParams& p = params.base;
  const auto& g = p.geometry;
  const auto& columns = params.columns;
  const BlockCoord block(g, g.padded_tokens / kRowTile);
  const Lane lane;
  const int warp = known_to_all_lanes(threadIdx.x / 32);
  const int first_row = block.row_tile * kRowTile, warp_row = threadIdx.x / 32 * 16 + lane.g;

  unsigned char* const rows = forward_memory;
  unsigned char* const rings = forward_memory + Layout::kRings;
  unsigned char* const panels = forward_memory + Layout::kPanels;
  const int y_panels = Layout::y_panels(columns);
  const int panel_bytes = kInSquares ? SquarePanels::vector_bytes(columns) : y_panels * kTileBytes;
  CopyBarrier* const arrived = reinterpret_cast<CopyBarrier*>(forward_memory + Layout::kArrived);
  CopyBarrier* const rows_arrived = arrived + Layout::kBarriers - 1;
  const KeyValueRings<T, Form, Layout::kKStages, Layout::kVStages, ForwardParams,
                      kWholeRows ? kTileRows<Wide> : 0>
      keys{params, block, rings, arrived};
  const Tile<T> queries{rows, kRowTile, 64};
  if (columns.part_width * columns.rows_per_tile < columns.width)
    clear_shared(rings, Layout::kRingBytes);
  if constexpr (kInSquares)
    SquareBias<T>::write_matrix(panels + panel_bytes, bias_ratio(p, block.head));
  if (threadIdx.x == 0) {
    prefetch_maps(params.q, params.k, params.v);
    if constexpr (kByRows) prefetch_maps(params.y);
    if constexpr (kInSquares) prefetch_maps(params.x_eights, params.y_eights);
    for (int i = 0; i < Layout::kBarriers; ++i) prepare_barrier(arrived + i);
  }
  publish_to_copy_engine();
  __syncthreads();
  const auto load_tokens = [&] {
    if (threadIdx.x != 0) return;
    expect_bytes(rows_arrived, kTileBytes + panel_bytes);
    // What is needed first comes first: all blocks begin at once, and memory takes a while.
    copy_box(rows, params.q, block.tokens(first_row), rows_arrived);
    keys.load_k(0);
    keys.load_v(0);
    if constexpr (!kDirect) keys.load_following();
  };
  // The launch before made the vectors; without any it may be another call's.
  if constexpr (kDirect) load_tokens();
  wait_for_previous();
  if constexpr (!kDirect) load_tokens();
  if (threadIdx.x == 0) {
    if constexpr (kInSquares) {
      copy_box(panels, params.x_eights, block.vectors(first_row), rows_arrived);
      copy_box(panels + SquarePanels::x_bytes(columns), params.y_eights, block.vectors(first_row),
               rows_arrived);
    } else {
      for (int panel = 0; panel < y_panels; ++panel)
        copy_box(panels + panel * kTileBytes, params.y, block.vectors(first_row, panel * 64),
                 rows_arrived);
    }
  }

  [[maybe_unused]] const SquareBias<T> square_bias(panels, columns);
  [[maybe_unused]] DirectBias<T, Wide, true, kWholeRows> direct(
      columns, kByRows ? bias_ratio(p, block.head) : 0.0F, nullptr);
  [[maybe_unused]] const RowsY<T, Wide> rows_y(panels);
  [[maybe_unused]] const float y_factor = kByRows ? bias_factor(p, block.head) * kLog2E : 0.0F;
  KeyTiling::Place at{0, 0, true};
  const auto read_terms = [&] {
    if constexpr (kByRows) {
      return TermsY<T, Wide>(rows_y, columns, at, y_factor);
    } else {
      return NoTerms();
    }
  };
  ColumnMask<kPieces> mask;
  ScoreSoftmax softmax(p.scale * kLog2E);
  float scores[kPieces][4], weights[kPieces][4], out[8][4] = {};
  FragmentA<T> fragments[kPieces / 2];
  // Scores start from the bias, where there is one.
  const auto prepare_scores = [&] {
    hold(scores);
    if constexpr (kByRows) {
      if constexpr (!kWholeRows)
        if (at.in_grid && at.first_row == 0)
          direct.begin_part(p, block, first_row + warp_row, at.part);
      direct.start(scores, at);
      hold(scores);
    }
  };
  const auto start_scores = [&](int tile) {
    begin_products();
    if constexpr (kInSquares) square_bias.start(scores, at);
    start_row_product<T, 4, kDirect>(scores, descriptor(shared_address(rows)), keys.k_matrix(tile));
    commit_products();
  };
  const auto weigh = [&](int tile, const auto& terms) {
    hold(scores);
    if constexpr (!kWholeRows && !kInSquares)
      if (!columns.whole)
        mask.apply(scores, columns, kDirect ? at : columns.place(tile), -INFINITY);
    softmax.weigh_tile(weights, scores, terms);
    hold(weights);
  };
  const auto finish_weights = [&](auto first) {
    if (decltype(first)::value ? softmax.begins_badly() : softmax.overflows()) {
      softmax.follow(scores, read_terms(), out);
      softmax.weigh_tile(weights, scores, read_terms());
    }
    softmax.end_tile();
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
      fragments[k] = as_a<T>(weights[2 * k], weights[2 * k + 1]);
  };
  // The scores of a tile are made together with the last tile's part of the result, which goes on
  // while they become weights.
  const auto attend = [&](int tile) {
    if constexpr (kDirect) go_on<Wide, kWholeRows>(columns, at);
    prepare_scores();
    const auto terms = read_terms();  // before products start, beside which memory answers slowly
    keys.await_k(tile);
    keys.await_v(tile - 1);
    hold(out);
    start_scores(tile);
    start_column_product<T>(out, fragments, keys.v_matrix(tile - 1));
    commit_products();
    // Copies into what was free when the last tile was done, by threads that would only wait now.
    if (warp == 0) {
      auto next = at;
      if constexpr (kDirect) go_on<Wide, kWholeRows>(columns, next);
      if (is_chosen()) keys.load_k(tile + 1, next);
    } else if (warp == 1) {
      if (tile > 1 && is_chosen()) keys.load_v(tile, at);
    }
    wait_for_products<1>();
    weigh(tile, terms);
    if constexpr (kDirect) stay_in_order();
    wait_for_products<0>();
    hold(out);
    keep(fragments);
    finish_weights(std::false_type());
    __syncthreads();
  };

  wait_for_boxes(rows_arrived, 0);
  if constexpr (kWholeRows) direct.begin_part(p, block, first_row + warp_row, 0);
  prepare_scores();
  keys.await_k(0);
  start_scores(0);
  if constexpr (kDirect)
    if (threadIdx.x == 0) keys.load_following();
  wait_for_products<0>();
  weigh(0, read_terms());
  finish_weights(std::true_type());
  __syncthreads();
  // Two at a time: which stage is whose is then known beforehand.
  static_assert(Layout::kKStages == 2 && Layout::kVStages == 2);
  for (int two = 0; 2 * two + 1 < columns.tiles; ++two) {
    attend(2 * two + 1);
    if (2 * two + 2 >= columns.tiles) break;
    attend(2 * two + 2);
  }
  if constexpr (kDirect) let_next_begin();
  keys.await_v(columns.tiles - 1);
  hold(out);
  begin_products();
  start_column_product<T>(out, fragments, keys.v_matrix(columns.tiles - 1));
  end_products();
  hold(out);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first_row + warp_row + 8 * half;
    const float whole = row_sum(softmax.sum[half]), by = 1.0F / whole;
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i / 2][2 * half + i % 2] *= by;
    if (lane.t == 0 && p.softmax != nullptr && token < g.tokens)
      p.softmax[block.batch_head * g.tokens + token] = {softmax.top[half] * kLn2, whole};
  }
  store_tokens(p.out, params.out, block, queries, out, 1.0F, first_row);
  await_stored_boxes();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
