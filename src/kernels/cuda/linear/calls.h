#pragma once

#include "sape2/kernels/cuda_training.h"

#include "kernels/cuda/linear/fits.h"

#include <cuda_runtime.h>

#include <cstdint>

/// Linear layers' kernels as host code calls them, before anything is chosen.
namespace sape2::kernels::cuda::linear {

/// out (rows, width) = a (rows, depth) · b, b (width, depth) or, turned, (depth, width).
struct Product {
  std::int64_t rows, width, depth;
  const void* a;
  const void* b;
};

/// Products that is_resident, with `columns`, kWide or kNarrow, of b in shared memory. The first
/// takes b as it lies, the second turned.
void gelu(int columns, const Product& product, const void* bias, void* out, void* derivative,
          cudaStream_t stream);
/// Gives the number of rows of partial sums of the columns that it leaves.
int times_derivative(int columns, const Product& product, const void* derivative, void* out,
                     float* partials, cudaStream_t stream);

/// At most kMostWeightGradients, in tiles of 128 × `columns`, 192 or 256.
void weight_gradients(int columns, const WeightGradient* gradients, int count, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::linear
