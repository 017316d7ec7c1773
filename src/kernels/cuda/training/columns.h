#pragma once

#include "sape2/kernels/cuda_training.h"

#include <cuda_runtime.h>

/// Column sums of matrices that many blocks walk through: each leaves a row of partial sums.
namespace sape2::kernels::cuda {

/// Rows of partial sums at most; two blocks for each multiprocessor of a large GPU.
inline constexpr int kMostPartials = 264;

/// Where the sums of up to three matrices go, each (width) in the type of the matrix, or null.
struct ColumnTotals {
  void* out[3] = {};
};

/// partials: (blocks, sums, width).
void add_partial_columns(DType dtype, const float* partials, int blocks, int sums,
                         std::int64_t width, const ColumnTotals& totals, cudaStream_t stream);

/// Throws Error unless rows are of a size the kernels take: whole groups of four.
void check_matrix(const char* what, std::int64_t rows, std::int64_t width);

}  // namespace sape2::kernels::cuda
