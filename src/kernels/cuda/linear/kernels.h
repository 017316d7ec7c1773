#pragma once

#include "sape2/kernels/cuda_training.h"

#include "kernels/cuda/linear/fits.h"

#include <cuda_runtime.h>

#include <cstdint>

/// Linear layers' kernels as the entry points (call.cu) start them, which choose the columns.
namespace sape2::kernels::cuda::linear {

/// out (rows, width) = a (rows, depth) · b, b (width, depth) or, turned, (depth, width).
struct Product {
  std::int64_t rows, width, depth;
  const void* a;
  const void* b;
};

/// Products that why_not_resident() does not refuse, with kWide or kNarrow `columns` of b in shared
/// memory. gelu takes b (width, depth), times_derivative takes it turned.
void gelu(int columns, const Product& product, const void* bias, void* out, void* derivative,
          cudaStream_t stream);
/// Leaves partial sums of the columns in `partials`, and gives the number of their rows.
int times_derivative(int columns, const Product& product, const void* derivative, void* out,
                     float* partials, cudaStream_t stream);

/// At most kMostWeightGradients, in tiles of 128 × `columns`, 192 or 256.
void weight_gradients(int columns, const WeightGradient* gradients, int count, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::linear
