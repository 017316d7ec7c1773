#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bias_gradient.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dq_loads.cuh"
#include "kernels/cuda/attention_sm90/direct/short_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/ref_if.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward on Hopper, queries along rows: one warpgroup takes 64 queries, walks over all
/// keys and gathers dq, the vectors' gradients and dgain. No bias, or the direct form.
namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The steps of a tile, on numbers that the kernel has in registers.
template <class T, BiasForm Form, int RowN8, bool Whole>
struct BwdDqTile {
  using Loads = BwdDqLoads<T, Form, RowN8, Whole>;
  using Short = typename Loads::Short;
  static constexpr bool kDirect = Form == BiasForm::direct, kShort = Loads::kShort;
  static constexpr int kN8 = kDirect ? kTileN8<RowN8> : 8;
  // In long rows of whole grids half of the weights are made before products are waited for that
  // they do not need; elsewhere the compiler may choose.
  static constexpr bool kInOrder = Whole && !kShort;
  static constexpr int kAtOnce = kInOrder ? kN8 / 2 : kN8;
  RefIf<const Loads, kShort> load;
  const KeyTiling& columns;
  const typename Loads::Keys& keys;
  const Tile<T>&queries, &douts;
  RefIf<const DirectBias<T, RowN8, false, Whole>, kDirect && !kShort> direct;
  RefIf<const RowsY<T, RowN8>, kDirect> rows_y;
  RefIf<DirectBiasGradient<T, RowN8, Whole>, kDirect> direct_gradient;
  float (&weight)[kN8][4], (&gradient)[kN8][4];
  float (&dq)[kDirect ? 9 : 8][4];
  FragmentA<T> (&fragments)[kN8 / 2];
  KeyTiling::Place& at;
  const float (&delta)[2];  // of the lane's rows

  /// Scores begin from the bias.
  __device__ void prepare_scores(int tile) const {
    fence_accumulators(weight);
    if constexpr (kDirect && !kShort) {
      direct->start(weight, at);
      fence_accumulators(weight);
    }
    keys.wait_k(tile);
  }
  __device__ void start_scores(int tile) const {
    wgmma_fence();
    if constexpr (kShort) Short::start(weight, load->panels_x, load->matrix);
    start_wgmma_ss<T, 4, kDirect>(weight, smem_descriptor(shared_address(queries.data)),
                                  keys.k_matrix(tile));
    wgmma_commit();
  }
  __device__ void start_dweights(int tile) const {
    start_wgmma_ss<T>(gradient, smem_descriptor(shared_address(douts.data)), keys.v_matrix(tile));
  }
  /// Read before products start: beside those memory answers slowly.
  __device__ auto read_terms() const {
    if constexpr (kDirect) {
      return TermsY<T, RowN8>(rows_y.to, columns, at, direct_gradient->factor * kLog2E);
    } else {
      return NoTerms();
    }
  }
  /// The logits' gradients, and their sums along x.
  __device__ void make_fragments() const {
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
        for (int n8 = 2 * k; n8 < 2 * k + 2; ++n8) direct_gradient->add_x(gradient[n8], n8);
    }
    if constexpr (kDirect && !Whole)
      if (at.in_grid && at.first_row + columns.rows_per_tile >= columns.down)
        direct_gradient->end_part(at.part);
  }
  /// dq += logits' gradients·k, and their sums along y.
  __device__ void start_sums(int tile, const KeyTiling::Place& place) const {
    if constexpr (kDirect)
      if (Whole || place.in_grid)
        return direct_gradient->start_sums(dq, fragments, keys.k(tile), place);
    if constexpr (!Whole) start_wgmma_rs<T>(dq, fragments, keys.k(tile));
  }
  __device__ void end_sums(const KeyTiling::Place& place) const {
    fence_accumulators(dq);
    if constexpr (kDirect) direct_gradient->end_rows(dq[8], place, rows_y.to);
  }
};

#endif

/// `Whole`: tiles of the grid are all there is, none of them lacks a token, from bias to scores is
/// a number of type T, and nobody asks for its gradient.
template <class T, BiasForm Form, int RowN8, bool Whole>
__global__ void __launch_bounds__(kThreads, 3)
    bwd_dq_kernel(const __grid_constant__ BackwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Smem = BwdDqSmem<Form>;
  using Loads = BwdDqLoads<T, Form, RowN8, Whole>;
  using Steps = BwdDqTile<T, Form, RowN8, Whole>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr int kN8 = Steps::kN8;
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

  const BwdDqSmemView<T, Form> smem{queries_memory};
  const Tile<T> queries = smem.q(), douts = smem.dout();
  const typename Loads::Keys keys{params, block, smem.kv(), smem.kv_full()};
  const int x_panels = Smem::x_panels(columns), y_panels = Smem::y_panels(columns);
  unsigned char* const panels_x = smem.panels();
  unsigned char* const panels_y = panels_x + (Whole ? 1 : x_panels) * kTileBytes;
  const Loads load{params,
                   columns,
                   block,
                   keys,
                   smem,
                   first_row,
                   x_panels,
                   y_panels,
                   panels_x,
                   panels_y,
                   panels_x + Loads::Short::kBytes};
  load.prepare();
  // Likely nobody has read it for long.
  if (warp == 3 && elect_one()) tma_prefetch(params.dout, block.tokens(first_row));
  fence_barrier_init();
  __syncthreads();
  pdl_wait();
  if (threadIdx.x == 0) load.first_tile();
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
    own_delta.write(douts, smem.delta());
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shift[half] = softmax[half].maximum * kLog2E + log2_approx(softmax[half].sum);
      delta[half] = smem.delta()[warp_row + 8 * half];
      if (lane.t == 0)
        reinterpret_cast<float2*>(
            params.base.delta)[block.batch_head * g.padded_tokens + row + 8 * half] =
            make_float2(shift[half], delta[half]);
    }
  };

  const float scale = p.scale * kLog2E;
  const DirectBias<T, RowN8, false, Whole> direct(
      columns, kDirect ? bias_ratio(p, block.head) : 0.0F, panels_x);
  const RowsY<T, RowN8> rows_y(panels_y);
  DirectBiasGradient<T, RowN8, Whole> direct_gradient(
      params.base, columns, block, kDirect ? bias_factor(p, block.head) : 0.0F, smem.ones());
  ColumnMask<kN8> mask;
  float weight[kN8][4], gradient[kN8][4];
  float dq[kDirect ? 9 : 8][4] = {};  // in the direct form also y's gradient at some grid rows
  FragmentA<T> fragments[kN8 / 2];
  KeyTiling::Place at{0, 0, true};
  const Steps t{load,   columns,  keys, queries,   douts, direct, rows_y, direct_gradient,
                weight, gradient, dq,   fragments, at,    delta};

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
    weigh_n8s(0, Steps::kAtOnce, terms);
    if constexpr (!Whole)
      if (!columns.whole) mask.apply(weight, columns, kDirect ? at : columns.place(tile), 0.0F);
    fence_accumulators(weight);
    if constexpr (Steps::kInOrder) keep_instruction_order();
    wgmma_wait<0>();
    weigh_n8s(Steps::kAtOnce, kN8, terms);
  };

  mbarrier_wait(smem.rows_full(), 0);
  t.prepare_scores(0);
  auto first_terms = t.read_terms();
  t.start_scores(0);
  mbarrier_wait(smem.dout_full(), 0);
  keys.wait_v(0);
  t.start_dweights(0);
  wgmma_commit();
  if (threadIdx.x == 0) keys.load_following();
  write_lse_delta();
  wgmma_wait<1>();
  weigh(0, first_terms);
  t.make_fragments();
  __syncthreads();
  for (int tile = 1; tile < columns.tiles; ++tile) {
    const auto before = at;
    if constexpr (kDirect) next_tile<RowN8, Whole>(columns, at);
    t.prepare_scores(tile);
    keys.wait_v(tile);
    auto terms = t.read_terms();
    fence_accumulators(dq);
    t.start_scores(tile);
    t.start_sums(tile - 1, before);
    t.start_dweights(tile);
    wgmma_commit();
    // Copies into what was free when the last tile was done, by threads that would only wait now.
    if (warp == 0) {
      if (tile > 1 && elect_one()) keys.load_k(tile - 2 + Smem::kKStages);
    } else if (warp == 1) {
      if (elect_one()) keys.load_v(tile - 1 + Smem::kVStages);
    }
    wgmma_wait<1>();
    weigh(tile, terms);
    fence_operands(fragments);
    t.make_fragments();
    t.end_sums(before);
    __syncthreads();
  }
  if constexpr (kDirect) pdl_launch_dependents();
  fence_accumulators(dq);
  wgmma_fence();
  t.start_sums(columns.tiles - 1, at);
  wgmma_commit_and_wait();
  t.end_sums(at);

  store_tokens(params.base.dq, params.dq, block, queries, dq, p.scale, first_row);
  if constexpr (Whole) {
    direct_gradient.template store<Loads::kShort ? Loads::Short::kRowBytes : 128>(
        params, panels_x, panels_y, y_panels);
  } else if constexpr (kDirect) {
    if (params.base.dgain != nullptr) {
      const float sum = block_sum(direct_gradient.with_bias, smem.delta());
      if (threadIdx.x == 0) params.base.dgain[blockIdx.x] = sum * (p.inside ? p.scale : 1.0F);
    }
  }
  tma_store_wait();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
