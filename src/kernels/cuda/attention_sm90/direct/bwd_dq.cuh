#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bias_gradient.cuh"
#include "kernels/cuda/attention_sm90/direct/short_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward on Hopper, queries along rows: one warpgroup takes 64 queries, walks over all
/// keys and gathers dq, the vectors' gradients and dgain. No bias, or the direct form.
namespace sape2::kernels::cuda::sm90 {

template <BiasForm Form>
struct BwdDqSmem {
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kKStages = 3, kVStages = 2;
  static constexpr int kKvBytes = (kKStages + kVStages) * kTileBytes;
  static constexpr int kRowBytes = 2 * kTileBytes;  // q, dout
  static constexpr int kOnesBytes = kDirect ? RowSums<0>::kBytes : 0;
  static constexpr int kBarriers = kKStages + kVStages + 2;
  // Places from the beginning; panels, whose number is known at run time only, come last.
  static constexpr int kKvStages = kRowBytes, kOnes = kKvStages + kKvBytes;
  static constexpr int kScratch = kOnes + kOnesBytes, kFull = kScratch + kRowTile * 4;
  static constexpr int kPanels = round_up(kFull + kBarriers * 8, kSharedAlignment);
  // The direct form's vectors: of x a panel for each part of the grid's columns.
  __host__ __device__ static int x_panels(const KeyTiling& columns) {
    return kDirect ? columns.parts : 0;
  }
  __host__ __device__ static int y_panels(const KeyTiling& columns) {
    return kDirect ? (columns.down + 63) / 64 : 0;
  }
  __host__ __device__ static int bytes(const KeyTiling& columns) {
    return kPanels + (x_panels(columns) + y_panels(columns)) * kTileBytes;
  }
};

/// `Whole`: tiles of the grid are all there is, none of them lacks a token, from bias to scores is
/// a number of type T, and nobody asks for its gradient.
template <class T, BiasForm Form, int RowN8, bool Whole>
__global__ void __launch_bounds__(kThreads, 3)
    bwd_dq_kernel(const __grid_constant__ BackwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = BwdDqSmem<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr int kN8 = kDirect ? kTileN8<RowN8> : 8;
  using Short = ShortDirect<T, RowN8>;
  constexpr bool kShort = Whole && Short::kServes;
  // Aligned by the compiler: three blocks leave no room to do so here.
  extern __shared__ __align__(kSharedAlignment) unsigned char queries_memory[];
  const AttentionParams& p = params.base.forward;
  const auto& g = p.geometry;
  const auto& columns = params.columns;
  const BlockCoord block(g, g.padded_tokens / kRowTile);
  const Lane lane;
  const int warp = warp_uniform(threadIdx.x / 32);
  const int first_row = block.row_tile * kRowTile, warp_row = threadIdx.x / 32 * 16 + lane.g;
  const int row = first_row + warp_row;

  unsigned char* const rows = queries_memory;
  unsigned char* const kv_stages = queries_memory + Layout::kKvStages;
  unsigned char* const ones = queries_memory + Layout::kOnes;
  float* const scratch = reinterpret_cast<float*>(queries_memory + Layout::kScratch);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(queries_memory + Layout::kFull);
  Mbarrier* const rows_full = full + Layout::kBarriers - 2;
  Mbarrier* const dout_full = rows_full + 1;
  const int x_panels = Layout::x_panels(columns), y_panels = Layout::y_panels(columns);
  unsigned char* const panels_x = queries_memory + Layout::kPanels;
  unsigned char* const panels_y = panels_x + (Whole ? 1 : x_panels) * kTileBytes;
  const Tile<T> queries{rows, kRowTile, 64}, douts{rows + kTileBytes, kRowTile, 64};
  const KvPipeline<T, Form, Layout::kKStages, Layout::kVStages, BackwardParams,
                   Whole ? kTileRows<RowN8> : 0>
      keys{params, block, kv_stages, full};
  if (columns.part_width * columns.rows_per_tile < columns.width)
    clear_shared(kv_stages, Layout::kKvBytes);
  if constexpr (kDirect) RowSums<RowN8>::template write<T>(ones, columns);
  unsigned char* const matrix = panels_x + Short::kBytes;
  if constexpr (kShort) Short::write_matrix(matrix, bias_ratio(p, block.head));
  if (threadIdx.x == 0) {
    prefetch_tensormaps(params.q, params.dout, params.k, params.v);
    if constexpr (kDirect) prefetch_tensormaps(kShort ? params.short_x : params.x, params.y);
    for (int i = 0; i < Layout::kBarriers; ++i) mbarrier_init(full + i);
  }
  // Likely nobody has read it for long.
  if (warp == 3 && elect_one()) tma_prefetch(params.dout, block.tokens(first_row));
  fence_barrier_init();
  __syncthreads();
  pdl_wait();
  if (threadIdx.x == 0) {
    // What is needed first comes first: all blocks begin at once, and memory takes a while.
    mbarrier_expect_tx(
        rows_full, (1 + y_panels) * kTileBytes + (kShort ? Short::kBytes : x_panels * kTileBytes));
    tma_load(queries.data, params.q, block.tokens(first_row), rows_full);
    keys.load_k(0);
    if constexpr (kShort) {
      tma_load(panels_x, params.short_x, block.vectors(first_row), rows_full);
    } else {
      for (int panel = 0; panel < x_panels; ++panel)
        tma_load(panels_x + panel * kTileBytes, params.x,
                 block.vectors(first_row, panel * columns.part_width), rows_full);
    }
    for (int panel = 0; panel < y_panels; ++panel)
      tma_load(panels_y + panel * kTileBytes, params.y, block.vectors(first_row, panel * 64),
               rows_full);
    mbarrier_expect_tx(dout_full, kTileBytes);
    tma_load(douts.data, params.dout, block.tokens(first_row), dout_full);
    keys.load_v(0);
  }
  // Read before they are needed.
  SoftmaxRow softmax[2] = {{INFINITY, 1.0F}, {INFINITY, 1.0F}};
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < g.tokens)
      softmax[half] = p.softmax[block.batch_head * g.tokens + row + 8 * half];
  const TileDelta<T> own_delta(params.base, block.image, block.head, first_row);
  float shift[2], delta[2];
  // lse (base 2) and delta of the rows, for this pass and the next.
  const auto write_lse_delta = [&] {
    own_delta.write(douts, scratch);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shift[half] = softmax[half].maximum * kLog2E + log2_approx(softmax[half].sum);
      delta[half] = scratch[warp_row + 8 * half];
      if (lane.t == 0)
        reinterpret_cast<float2*>(
            params.base.delta)[block.batch_head * g.padded_tokens + row + 8 * half] =
            make_float2(shift[half], delta[half]);
    }
  };

  const float scale = p.scale * kLog2E;
  [[maybe_unused]] const DirectBias<T, RowN8, false, Whole> direct(
      columns, kDirect ? bias_ratio(p, block.head) : 0.0F, panels_x);
  [[maybe_unused]] const RowsY<T, RowN8> rows_y(panels_y);
  [[maybe_unused]] DirectBiasGradient<T, RowN8, Whole> direct_gradient(
      params.base, columns, block, kDirect ? bias_factor(p, block.head) : 0.0F, ones);
  ColumnMask<kN8> mask;
  float weight[kN8][4], gradient[kN8][4];
  float dq[kDirect ? 9 : 8][4] = {};  // in the direct form also y's gradient at some grid rows
  FragmentA<T> fragments[kN8 / 2];
  KeyTiling::Place at{0, 0, true};
  const auto prepare_scores = [&](int tile) {
    fence_accumulators(weight);
    if constexpr (kDirect && !kShort) {
      direct.start(weight, at);
      fence_accumulators(weight);
    }
    keys.wait_k(tile);
  };
  const auto start_scores = [&](int tile) {
    wgmma_fence();
    if constexpr (kShort) Short::start(weight, panels_x, matrix);
    start_wgmma_ss<T, 4, kDirect>(weight, smem_descriptor(shared_address(queries.data)),
                                  keys.k_matrix(tile));
    wgmma_commit();
  };
  const auto start_dweights = [&](int tile) {
    start_wgmma_ss<T>(gradient, smem_descriptor(shared_address(douts.data)), keys.v_matrix(tile));
  };
  // Read before products start: beside those memory answers slowly.
  const auto read_terms = [&] {
    if constexpr (kDirect) {
      return TermsY<T, RowN8>(rows_y, columns, at, direct_gradient.factor * kLog2E);
    } else {
      return NoTerms();
    }
  };
  // In long rows of whole grids half of the weights are made before products are waited for that
  // they do not need; elsewhere the compiler may choose.
  constexpr bool kInOrder = Whole && !kShort;
  constexpr int kAtOnce = kInOrder ? kN8 / 2 : kN8;
  const auto weigh_n8s = [&](int first, int last, auto& terms) {
#pragma unroll
    for (int n8 = first; n8 < last; ++n8) {
      float base[2] = {-shift[0], -shift[1]};
      if constexpr (kDirect) {
        terms.next(base);
        base[0] -= shift[0];
        base[1] -= shift[1];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weight[n8][e] = power_of_2(fmaf(weight[n8][e], scale, base[e / 2]));
    }
  };
  // What becomes of a tile's scores while its gradients, and dq of the tile before, are in work.
  const auto weigh = [&](int tile, auto& terms) {
    fence_accumulators(weight);
    weigh_n8s(0, kAtOnce, terms);
    if constexpr (!Whole)
      if (!columns.whole) mask.apply(weight, columns, kDirect ? at : columns.place(tile), 0.0F);
    fence_accumulators(weight);
    if constexpr (kInOrder) keep_instruction_order();
    wgmma_wait<0>();
    weigh_n8s(kAtOnce, kN8, terms);
  };
  const auto make_fragments = [&] {
    fence_accumulators(gradient);
    fence_accumulators(dq);
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) {
#pragma unroll
      for (int n8 = 2 * k; n8 < 2 * k + 2; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[n8][e] = weight[n8][e] * (gradient[n8][e] - delta[e / 2]);
      fragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
      // Prefix tokens come when nobody asks for the sums any more.
      if constexpr (kDirect)
#pragma unroll
        for (int n8 = 2 * k; n8 < 2 * k + 2; ++n8) direct_gradient.add_x(gradient[n8], n8);
    }
    if constexpr (kDirect && !Whole)
      if (at.in_grid && at.first_row + columns.rows_per_tile >= columns.down)
        direct_gradient.end_part(at.part);
  };
  const auto start_sums = [&](int tile, const KeyTiling::Place& place) {
    if constexpr (kDirect)
      if (Whole || place.in_grid)
        return direct_gradient.start_sums(dq, fragments, keys.k(tile), place);
    if constexpr (!Whole) start_wgmma_rs<T>(dq, fragments, keys.k(tile));
  };
  const auto end_sums = [&](const KeyTiling::Place& place) {
    fence_accumulators(dq);
    if constexpr (kDirect) direct_gradient.end_rows(dq[8], place, rows_y);
  };

  mbarrier_wait(rows_full, 0);
  prepare_scores(0);
  auto first_terms = read_terms();
  start_scores(0);
  mbarrier_wait(dout_full, 0);
  keys.wait_v(0);
  start_dweights(0);
  wgmma_commit();
  if (threadIdx.x == 0) keys.load_following();
  write_lse_delta();
  wgmma_wait<1>();
  weigh(0, first_terms);
  make_fragments();
  __syncthreads();
  for (int tile = 1; tile < columns.tiles; ++tile) {
    const auto before = at;
    if constexpr (kDirect) next_tile<RowN8, Whole>(columns, at);
    prepare_scores(tile);
    keys.wait_v(tile);
    auto terms = read_terms();
    fence_accumulators(dq);
    start_scores(tile);
    start_sums(tile - 1, before);
    start_dweights(tile);
    wgmma_commit();
    // Copies into what was free when the last tile was done, by threads that would only wait now.
    if (warp == 0) {
      if (tile > 1 && elect_one()) keys.load_k(tile - 2 + Layout::kKStages);
    } else if (warp == 1) {
      if (elect_one()) keys.load_v(tile - 1 + Layout::kVStages);
    }
    wgmma_wait<1>();
    weigh(tile, terms);
    fence_operands(fragments);
    make_fragments();
    end_sums(before);
    __syncthreads();
  }
  if constexpr (kDirect) pdl_launch_dependents();
  fence_accumulators(dq);
  wgmma_fence();
  start_sums(columns.tiles - 1, at);
  wgmma_commit_and_wait();
  end_sums(at);

  store_tokens(params.base.dq, params.dq, block, queries, dq, p.scale, first_row);
  if constexpr (Whole) {
    direct_gradient.template store<kShort ? Short::kRowBytes : 128>(params, panels_x, panels_y,
                                                                    y_panels);
  } else if constexpr (kDirect) {
    if (params.base.dgain != nullptr) {
      const float sum = block_sum(direct_gradient.with_bias, scratch);
      if (threadIdx.x == 0) params.base.dgain[blockIdx.x] = sum * (p.inside ? p.scale : 1.0F);
    }
  }
  tma_store_wait();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
