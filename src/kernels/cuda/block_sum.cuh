#pragma once

#include <cuda_runtime.h>

namespace sape2::kernels::cuda {

/// The sum over a block, in a fixed order; `shared` has a place for each warp.
__device__ inline float block_sum(float x, float* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll 1
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += shared[warp];
  return sum;
}

}  // namespace sape2::kernels::cuda
