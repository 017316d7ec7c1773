#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/training/columns.h"
#include "kernels/cuda/training/vectors4.cuh"
#include "kernels/cuda/training/walk.cuh"

namespace sape2::kernels::cuda {
namespace {

constexpr int kLanes = 32;   // neighbouring columns of one block
constexpr int kSlices = 16;  // each adds every 16th row of partial sums

template <class T>
__global__ void add_kernel(const float* partials, int blocks, int sums, std::int64_t width,
                           ColumnTotals totals) {
  __shared__ float slices[kSlices][kLanes];
  T* const out = static_cast<T*>(totals.out[blockIdx.y]);
  if (out == nullptr) return;
  const std::int64_t column = std::int64_t(blockIdx.x) * kLanes + threadIdx.x;
  float sum = 0.0F;
  if (column < width) {
#pragma unroll 4
    for (int block = threadIdx.y; block < blocks; block += kSlices)
      sum += partials[(std::int64_t(block) * sums + blockIdx.y) * width + column];
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  sum = 0.0F;
  for (int slice = 0; slice < kSlices; ++slice) sum += slices[slice][threadIdx.x];
  out[column] = narrow<T>(sum);
}

template <class T>
struct Sum {
  const T* x;
  __device__ Four operator()(std::int64_t at, std::int64_t) const { return load4(x + at); }
};

}  // namespace

void check_matrix(const char* what, std::int64_t rows, std::int64_t width) {
  if (rows < 0 || width < 4 || width % 4 != 0)
    throw Error(std::string(what) + ": a matrix of " + std::to_string(rows) + " × " +
                std::to_string(width) + "; rows of a multiple of 4 elements were expected");
}

std::size_t column_sums_workspace(std::int64_t, std::int64_t width, int sums) {
  return static_cast<std::size_t>(kMostPartials) * sums * width * sizeof(float);
}

void add_partial_columns(DType dtype, const float* partials, int blocks, int sums,
                         std::int64_t width, const ColumnTotals& totals, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((width + kLanes - 1) / kLanes), sums);
  dispatch_type(dtype, [&](auto type) {
    add_kernel<decltype(type)>
        <<<grid, dim3(kLanes, kSlices), 0, stream>>>(partials, blocks, sums, width, totals);
  });
  check(cudaGetLastError(), "launching a kernel");
}

void column_sums(DType dtype, std::int64_t rows, std::int64_t width, const void* x, void* out,
                 void* workspace, void* stream) {
  check_matrix("column_sums", rows, width);
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const partials = static_cast<float*>(workspace);
  int slices = 0;
  dispatch_type(dtype, [&](auto type) {
    using T = decltype(type);
    slices = walk_columns(Sum<T>{static_cast<const T*>(x)}, rows, width, partials, on);
  });
  add_partial_columns(dtype, partials, slices, 1, width, {{out}}, on);
}

}  // namespace sape2::kernels::cuda
