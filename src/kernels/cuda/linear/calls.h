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

/// Each returns false if that variant is not compiled for this, or does not fit.
bool add_bias(const ResidentVariant& variant, const Product& product, bool turned, const void* bias,
              void* out, cudaStream_t stream);
bool gelu(const ResidentVariant& variant, const Product& product, const void* bias, void* out,
          void* derivative, cudaStream_t stream);
/// Leaves `partial_rows` rows of partial sums of the columns.
bool times_derivative(const ResidentVariant& variant, const Product& product,
                      const void* derivative, void* out, float* partials, int* partial_rows,
                      cudaStream_t stream);

/// In tiles of 128 × `columns`; false if there are more than kMostWeightGradients.
bool weight_gradients(int columns, const WeightGradient* gradients, int count, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::linear
