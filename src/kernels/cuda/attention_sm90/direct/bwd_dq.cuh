#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bias_gradient.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dq_loads.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dq_tile.cuh"
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
  const int warp = warp_uniform(threadIdx.x / 32);
  const int first_row = block.row_tile * kRowTile, warp_row = threadIdx.x / 32 * 16 + Lane().g;

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
  const OwnRows<T> own(params, block, first_row, warp_row);  // read before they are needed
  float shift[2], delta[2];
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
  const Steps t{load,   columns,         keys,   queries,  douts, direct,
                rows_y, direct_gradient, weight, gradient, dq,    fragments,
                at,     shift,           delta,  scale,    mask,  warp};

  mbarrier_wait(smem.rows_full(), 0);
  t.prepare_scores(0);
  auto first_terms = t.read_terms();
  t.start_scores(0);
  mbarrier_wait(smem.dout_full(), 0);
  keys.wait_v(0);
  t.start_dweights(0);
  wgmma_commit();
  if (threadIdx.x == 0) keys.load_following();
  own.write_lse_delta(params, block, douts, smem.delta(), warp_row, shift, delta);
  wgmma_wait<1>();
  t.weigh(0, first_terms);
  t.make_fragments();
  __syncthreads();
  for (int tile = 1; tile < columns.tiles; ++tile) t.one_tile(tile);
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
