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

/// Sums of several numbers over a block, each in that order, the first for thread 0 and so on;
/// `shared` has a place for each of them and each warp.
template <int Count>
__device__ float block_sums(const float (&x)[Count], float* shared) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    float sum = x[i];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) shared[i * warps + warp] = sum;
  }
  __syncthreads();
  float sum = 0.0F;
  if (threadIdx.x < Count)
    for (int from = 0; from < warps; ++from) sum += shared[threadIdx.x * warps + from];
  return sum;
}

}  // namespace sape2::kernels::cuda
