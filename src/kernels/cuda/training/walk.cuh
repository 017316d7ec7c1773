#pragma once

#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/training/columns.h"
#include "kernels/cuda/training/vectors4.cuh"

namespace sape2::kernels::cuda {

inline constexpr int kWalkLanes = 32;  // of four columns each
inline constexpr int kWalkRows = 8;    // rows at a time

/// Calls visit(element, column) for every four neighbours of a matrix and leaves the sums of what
/// it returns, column by column, in partials (slices, width).
template <class Visit>
__global__ void __launch_bounds__(kWalkLanes* kWalkRows)
    walk_kernel(const Visit visit, std::int64_t rows, std::int64_t width, float* partials) {
  __shared__ float sums[kWalkRows][kWalkLanes * 4];
  const std::int64_t column = (std::int64_t(blockIdx.x) * kWalkLanes + threadIdx.x) * 4;
  Four sum{};
  if (column < width) {
#pragma unroll 4
    for (std::int64_t row = std::int64_t(blockIdx.y) * kWalkRows + threadIdx.y; row < rows;
         row += std::int64_t(gridDim.y) * kWalkRows) {
      const Four value = visit(row * width + column, column);
      for (int i = 0; i < 4; ++i) sum.x[i] += value.x[i];
    }
  }
  store4(&sums[threadIdx.y][threadIdx.x * 4], sum);
  __syncthreads();
  const int thread = threadIdx.y * kWalkLanes + threadIdx.x;
  const std::int64_t mine = std::int64_t(blockIdx.x) * kWalkLanes * 4 + thread;
  if (thread >= kWalkLanes * 4 || mine >= width) return;
  float total = 0.0F;
  for (int row = 0; row < kWalkRows; ++row) total += sums[row][thread];
  partials[std::int64_t(blockIdx.y) * width + mine] = total;
}

/// Returns the number of slices.
template <class Visit>
int walk_columns(const Visit& visit, std::int64_t rows, std::int64_t width, float* partials,
                 cudaStream_t stream) {
  const std::int64_t across = (width + kWalkLanes * 4 - 1) / (kWalkLanes * 4);
  // Enough blocks for six on each multiprocessor, but several rows for each of their threads.
  const std::int64_t wanted = std::max<std::int64_t>(1, 3 * kMostPartials / across);
  const std::int64_t useful = std::max<std::int64_t>(1, rows / (4 * kWalkRows));
  const auto slices =
      static_cast<unsigned>(std::min<std::int64_t>({wanted, useful, kMostPartials}));
  walk_kernel<<<dim3(static_cast<unsigned>(across), slices), dim3(kWalkLanes, kWalkRows), 0,
                stream>>>(visit, rows, width, partials);
  check(cudaGetLastError(), "launching a kernel");
  return static_cast<int>(slices);
}

}  // namespace sape2::kernels::cuda
