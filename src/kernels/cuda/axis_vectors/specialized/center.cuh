#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/axis_vectors/specialized/tokens.cuh"
#include "kernels/cuda/axis_vectors/specialized/vectors.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Vectors made ready for distances where they are made: see axis_vectors/center.cuh.
namespace sape2::kernels::cuda::axis_vectors::specialized {

struct CenterParams {
  Grid grid;
  int axis;  // the grid's first one
  Params stage;
  Outputs to;
  TokenMaps maps[2];  // by axis
};

/// The common vector of a head and axis, which all its vectors will be shifted by: the mean of the
/// patches in the middle of the grid. It has to be known before vectors are made, which leave
/// shifted, so this kernel makes one block's lines of them and takes no samples from others.
template <class T, class Lines>
__global__ void __launch_bounds__(Lines::kThreads)
    center_kernel(const __grid_constant__ CenterParams params) {
  extern __shared__ __align__(kSharedAlignment) unsigned char smem[];
  const int axis_index = params.axis + blockIdx.y;
  Block block(params.stage, axis_index, params.grid);
  const AxisLines& axis = block.axis;
  block.first_line = max(0, axis.lines - Lines::kLines) / 2;
  block.last_line = block.first_line + Lines::kLines;
  Vectors<T, Lines> vectors(params.stage, block, params.maps[axis_index], smem);
  block.be_known();
  pdl_wait();  // a call's first kernel
  pdl_launch_dependents();
  vectors.begin(axis_index);
  float vector[Lines::kN8][4];
  vectors.make(vector, block.first_line);
  __syncthreads();

  const Lane lane;
  const int width = params.to.widths[axis_index];
  float* const sums = vectors.values();  // (warps, Long)
#pragma unroll
  for (int n8 = 0; n8 < Lines::kN8; ++n8)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      float sum = vector[n8][odd] + vector[n8][2 + odd];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (lane.g == 0) sums[vectors.warp.index * Lines::kLong + n8 * 8 + 2 * lane.t + odd] = sum;
    }
  __syncthreads();
  const int entry = threadIdx.x;
  if (entry >= width) return;
  float sum = 0.0F;
#pragma unroll
  for (int warp = 0; warp < Lines::kWarps; ++warp) sum += sums[warp * Lines::kLong + entry];
  params.to.centers[axis_index][block.batch_head * width + entry] =
      sum / (min(Lines::kLines, axis.lines) * axis.length);
}

/// Vectors less the common one. `shift`: of this head and axis.
template <int N8>
__device__ void subtract_center(float (&vector)[N8][4], const float* shift, int width) {
  const Lane lane;
  float2 common[N8];
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
    common[n8] = n8 * 8 < width
                     ? __ldcg(reinterpret_cast<const float2*>(shift + n8 * 8 + 2 * lane.t))
                     : make_float2(0.0F, 0.0F);
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) vector[n8][e] -= e % 2 ? common[n8].y : common[n8].x;
}

/// Squared lengths of a warp's vectors, rounded as they are stored, by the very products that
/// distances are made of. Lanes t = g/2 have them: of patch g, and of patch g + 8.
template <class T, int N8>
__device__ float2 squared_lengths(const float (&vector)[N8][4]) {
  const Lane lane;
  float c[2][4] = {};
#pragma unroll
  for (int n8 = 0; n8 < N8; n8 += 2) {
    const auto a = as_a<T>(vector[n8], vector[n8 + 1]);
    // The same numbers as B, patches 0 … 7 and 8 … 15.
    mma(c[0], a, FragmentB<T>{a.r[0], a.r[2]});
    mma(c[1], a, FragmentB<T>{a.r[1], a.r[3]});
  }
  return diagonal(c, lane);
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
