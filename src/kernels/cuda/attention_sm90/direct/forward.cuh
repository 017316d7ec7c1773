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
  static constexpr int kKvBytes = (kKStages + kVStages) * kTileBytes;
  static constexpr int kBarriers = kKStages + kVStages + 1;
  // Places from the beginning; panels, whose number is known at run time only, come last.
  static constexpr int kKvStages = kTileBytes, kFull = kKvStages + kKvBytes;
  static constexpr int kPanels = round_up(kFull + kBarriers * 8, kSharedAlignment);
  __host__ __device__ static int y_panels(const KeyTiling& columns) {
    return Form == BiasForm::direct ? (columns.down + 63) / 64 : 0;
  }
  __host__ __device__ static int bytes(const KeyTiling& columns) {
    return kPanels + y_panels(columns) * kTileBytes;
  }
};

/// Weights from scores and what is added to logits · log2(e), by rows, n8 fragment after n8
/// fragment: `Terms`.
struct ScoreSoftmax : LazySoftmax {
  float scale;  // from score to logit · log2(e)

  __device__ explicit ScoreSoftmax(float s) : scale(s) {}

  template <int N8, class Terms>
  __device__ void weigh_tile(float (&weights)[N8][4], const float (&scores)[N8][4], Terms terms) {
    begin_tile();
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      float base[2] = {shift[0], shift[1]};
      if constexpr (!std::is_same_v<Terms, NoTerms>) {
        terms.next(base);
        base[0] += shift[0];
        base[1] += shift[1];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights[n8][e] = weigh(fmaf(scores[n8][e], scale, base[e / 2]), e);
    }
  }
  template <int N8, class Terms>
  __device__ void follow(const float (&scores)[N8][4], Terms terms, float (&out)[8][4]) {
    float greatest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      float base[2];
      terms.next(base);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        greatest[e / 2] = fmaxf(greatest[e / 2], fmaf(scores[n8][e], scale, base[e / 2]));
    }
    move(greatest, out);
  }
};

/// What tiles of keys are: grid rows, or squares (SquareBias). Unless any may be, tiles of the grid
/// are all there is, none of them lacks a token, and from bias to scores is a number of type T.
enum class KeyTiles { any_rows, whole_rows, whole_squares };

/// Blocks a multiprocessor: as many as registers allow.
template <BiasForm Form, int RowN8, KeyTiles Tiles>
inline constexpr int kForwardBlocks =
    Form == BiasForm::none || Tiles == KeyTiles::whole_squares || kTileN8<RowN8> < 8 ? 4 : 3;

template <class T, BiasForm Form, int RowN8, KeyTiles Tiles>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<Form, RowN8, Tiles>)
    forward_kernel(const __grid_constant__ ForwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Smem = ForwardSmem<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr bool kInSquares = Tiles == KeyTiles::whole_squares, kByRows = kDirect && !kInSquares;
  constexpr bool kWholeRows = Tiles == KeyTiles::whole_rows;
  constexpr int kN8 = kByRows ? kTileN8<RowN8> : 8;
  extern __shared__ __align__(kSharedAlignment) unsigned char forward_memory[];
  const AttentionParams& p = params.base;
  const auto& g = p.geometry;
  const auto& columns = params.columns;
  const BlockCoord block(g, g.padded_tokens / kRowTile);
  const Lane lane;
  const int warp = warp_uniform(threadIdx.x / 32);
  const int first_row = block.row_tile * kRowTile, warp_row = threadIdx.x / 32 * 16 + lane.g;

  unsigned char* const rows = forward_memory;
  unsigned char* const kv_stages = forward_memory + Smem::kKvStages;
  unsigned char* const panels = forward_memory + Smem::kPanels;
  const int y_panels = Smem::y_panels(columns);
  const int panel_bytes = kInSquares ? SquarePanels::vector_bytes(columns) : y_panels * kTileBytes;
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(forward_memory + Smem::kFull);
  Mbarrier* const rows_full = full + Smem::kBarriers - 1;
  const KvPipeline<T, Form, Smem::kKStages, Smem::kVStages, ForwardParams,
                   kWholeRows ? kTileRows<RowN8> : 0>
      keys{params, block, kv_stages, full};
  const Tile<T> queries{rows, kRowTile, 64};
  if (columns.part_width * columns.rows_per_tile < columns.width)
    clear_shared(kv_stages, Smem::kKvBytes);
  if constexpr (kInSquares)
    SquareBias<T>::write_matrix(panels + panel_bytes, bias_ratio(p, block.head));
  if (threadIdx.x == 0) {
    prefetch_tensormaps(params.q, params.k, params.v);
    if constexpr (kByRows) prefetch_tensormaps(params.y);
    if constexpr (kInSquares) prefetch_tensormaps(params.x_eights, params.y_eights);
    for (int i = 0; i < Smem::kBarriers; ++i) mbarrier_init(full + i);
  }
  fence_barrier_init();
  __syncthreads();
  const auto load_tokens = [&] {
    if (threadIdx.x != 0) return;
    mbarrier_expect_tx(rows_full, kTileBytes + panel_bytes);
    // What is needed first comes first: all blocks begin at once, and memory takes a while.
    tma_load(rows, params.q, block.tokens(first_row), rows_full);
    keys.load_k(0);
    keys.load_v(0);
    if constexpr (!kDirect) keys.load_following();
  };
  // The launch before made the vectors; without any it may be another call's.
  if constexpr (kDirect) load_tokens();
  pdl_wait();
  if constexpr (!kDirect) load_tokens();
  if (threadIdx.x == 0) {
    if constexpr (kInSquares) {
      tma_load(panels, params.x_eights, block.vectors(first_row), rows_full);
      tma_load(panels + SquarePanels::x_bytes(columns), params.y_eights, block.vectors(first_row),
               rows_full);
    } else {
      for (int panel = 0; panel < y_panels; ++panel)
        tma_load(panels + panel * kTileBytes, params.y, block.vectors(first_row, panel * 64),
                 rows_full);
    }
  }

  [[maybe_unused]] const SquareBias<T> square_bias(panels, columns);
  [[maybe_unused]] DirectBias<T, RowN8, true, kWholeRows> direct(
      columns, kByRows ? bias_ratio(p, block.head) : 0.0F, nullptr);
  [[maybe_unused]] const RowsY<T, RowN8> rows_y(panels);
  [[maybe_unused]] const float y_factor = kByRows ? bias_factor(p, block.head) * kLog2E : 0.0F;
  KeyTiling::Place at{0, 0, true};
  const auto read_terms = [&] {
    if constexpr (kByRows) {
      return TermsY<T, RowN8>(rows_y, columns, at, y_factor);
    } else {
      return NoTerms();
    }
  };
  ColumnMask<kN8> mask;
  ScoreSoftmax softmax(p.scale * kLog2E);
  float scores[kN8][4], weights[kN8][4], out[8][4] = {};
  FragmentA<T> fragments[kN8 / 2];
  // Scores start from the bias, where there is one.
  const auto prepare_scores = [&] {
    fence_accumulators(scores);
    if constexpr (kByRows) {
      if constexpr (!kWholeRows)
        if (at.in_grid && at.first_row == 0)
          direct.begin_part(p, block, first_row + warp_row, at.part);
      direct.start(scores, at);
      fence_accumulators(scores);
    }
  };
  const auto start_scores = [&](int tile) {
    wgmma_fence();
    if constexpr (kInSquares) square_bias.start(scores, at);
    start_wgmma_ss<T, 4, kDirect>(scores, smem_descriptor(shared_address(rows)),
                                  keys.k_matrix(tile));
    wgmma_commit();
  };
  const auto weigh = [&](int tile, const auto& terms) {
    fence_accumulators(scores);
    if constexpr (!kWholeRows && !kInSquares)
      if (!columns.whole)
        mask.apply(scores, columns, kDirect ? at : columns.place(tile), -INFINITY);
    softmax.weigh_tile(weights, scores, terms);
    fence_accumulators(weights);
  };
  const auto finish_weights = [&](auto first) {
    if (decltype(first)::value ? softmax.begins_badly() : softmax.overflows()) {
      softmax.follow(scores, read_terms(), out);
      softmax.weigh_tile(weights, scores, read_terms());
    }
    softmax.end_tile();
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) fragments[k] = as_a<T>(weights[2 * k], weights[2 * k + 1]);
  };
  // The scores of a tile are made together with the last tile's part of the result, which goes on
  // while they become weights.
  const auto attend = [&](int tile) {
    if constexpr (kDirect) next_tile<RowN8, kWholeRows>(columns, at);
    prepare_scores();
    const auto terms = read_terms();  // before products start, beside which memory answers slowly
    keys.wait_k(tile);
    keys.wait_v(tile - 1);
    fence_accumulators(out);
    start_scores(tile);
    start_wgmma_rs<T>(out, fragments, keys.v_matrix(tile - 1));
    wgmma_commit();
    // Copies into what was free when the last tile was done, by threads that would only wait now.
    if (warp == 0) {
      auto next = at;
      if constexpr (kDirect) next_tile<RowN8, kWholeRows>(columns, next);
      if (elect_one()) keys.load_k(tile + 1, next);
    } else if (warp == 1) {
      if (tile > 1 && elect_one()) keys.load_v(tile, at);
    }
    wgmma_wait<1>();
    weigh(tile, terms);
    if constexpr (kDirect) keep_instruction_order();
    wgmma_wait<0>();
    fence_accumulators(out);
    fence_operands(fragments);
    finish_weights(std::false_type());
    __syncthreads();
  };

  mbarrier_wait(rows_full, 0);
  if constexpr (kWholeRows) direct.begin_part(p, block, first_row + warp_row, 0);
  prepare_scores();
  keys.wait_k(0);
  start_scores(0);
  if constexpr (kDirect)
    if (threadIdx.x == 0) keys.load_following();
  wgmma_wait<0>();
  weigh(0, read_terms());
  finish_weights(std::true_type());
  __syncthreads();
  // Two at a time: which stage is whose is then known beforehand.
  static_assert(Smem::kKStages == 2 && Smem::kVStages == 2);
  for (int two = 0; 2 * two + 1 < columns.tiles; ++two) {
    attend(2 * two + 1);
    if (2 * two + 2 >= columns.tiles) break;
    attend(2 * two + 2);
  }
  if constexpr (kDirect) pdl_launch_dependents();
  keys.wait_v(columns.tiles - 1);
  fence_accumulators(out);
  wgmma_fence();
  start_wgmma_rs<T>(out, fragments, keys.v_matrix(columns.tiles - 1));
  wgmma_commit_and_wait();
  fence_accumulators(out);

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
  tma_store_wait();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
