#pragma once

#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/warpgroup_registers.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_accumulate_wg.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_block.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_score_wg.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward on Hopper, distance form. A block takes 64 tokens, as queries and as keys at
/// once, and walks over all tokens in tiles: a pair's distance serves both ways round, and the
/// vectors' gradients need both. Two warpgroups take turns at tiles and make weights and gradients
/// of pairs; a third gathers all sums. What goes from those to this one are 16-bit matrices in
/// shared memory, which wgmma reads as they are, so nobody waits for an answer. Where
/// that is faster it then takes the next 64, until none are left.
namespace sape2::kernels::cuda::sm90 {

/// lse (base 2) of 64 tokens, then their dout · out; of the padding what gives weights of 0.
template <class T>
__global__ void __launch_bounds__(kThreads)
    lse_delta_kernel(const __grid_constant__ AttentionBackwardParams params) {
  __shared__ float delta[kRowTile];
  const auto& g = params.forward.geometry;
  const BlockCoord block(g, g.padded_tokens / kRowTile);
  const int first_row = block.row_tile * kRowTile;
  const int token = first_row + threadIdx.x;
  // Likely nobody has read it for long. Nothing is read by that, so the launch before may still be
  // writing there.
  if (threadIdx.x < kRowTile && token < g.tokens)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(
        head_of<T>(params.dout, block.image, block.head).row(token)));
  pdl_wait();
  pdl_launch_dependents();
  const bool exists = threadIdx.x < kRowTile && token < g.tokens;
  SoftmaxRow row{};
  if (exists) row = params.forward.softmax[block.batch_head * g.tokens + token];
  rows_delta<T, 64>(params, block.image, block.head, first_row, delta);
  __syncthreads();
  if (threadIdx.x >= kRowTile) return;
  const float2 lse_delta_of =
      exists ? make_float2(row.maximum * kLog2E + log2_approx(row.sum), delta[threadIdx.x])
             : make_float2(INFINITY, 0.0F);
  float* const to = params.delta + 2 * (block.batch_head * g.padded_tokens + first_row);
  to[threadIdx.x] = lse_delta_of.x;
  to[kRowTile + threadIdx.x] = lse_delta_of.y;
}

/// `Steps`: sixteens of entries in the longer of the two vectors; `Walks`: there are more tiles of
/// rows than blocks.
template <class T, int Steps, bool Walks>
__global__ void __launch_bounds__(kPairThreads, 1)
    distance_bwd_kernel(const __grid_constant__ BackwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const DistanceBwdBlock<T, Steps, Walks> pairs(params);
  const int role = warp_uniform(threadIdx.x / kThreads);
  // The sums have nothing to do yet.
  const bool begins_copies = role == 2 && pairs.warp == 0 && elect_one();
  if (begins_copies) {
    pairs.prepare();
    fence_barrier_init();
    pairs.load_old();
  }
  pairs.fill_ones();
  fence_barrier_init();
  __syncthreads();
  pdl_wait();
  if (begins_copies) pairs.load_new();
  float with_bias = 0.0F;
  // Registers go to the sums, whose number grows with the vectors.
  constexpr int kForSums = Steps > 2 ? 200 : 168, kForWeights = Steps > 2 ? 152 : 168;
  static_assert(kForSums + 2 * kForWeights <= 3 * kPairRegisters);
  if (role == 2) {
    change_registers<kPairRegisters, kForSums>();
    BwdAccumulateWg<T, Steps, Walks>{pairs}.run();
  } else {
    change_registers<kPairRegisters, kForWeights>();
    with_bias = BwdScoreWg<T, Steps, Walks>(pairs, role).run();
  }
  pdl_launch_dependents();
  if (params.base.dgain != nullptr) {
    const float sum = block_sum(with_bias, pairs.scratch());
    if (threadIdx.x == 0)
      params.base.dgain[blockIdx.x] = sum * (pairs.p.inside ? pairs.p.scale : 1.0F);
  }
#endif
}

}  // namespace sape2::kernels::cuda::sm90
