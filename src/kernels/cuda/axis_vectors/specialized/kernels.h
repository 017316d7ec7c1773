#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/limits.h"

#include <cuda_runtime.h>

/// Stage 1 where the compiler knows the head size and the padded length of lines; limits.h says for
/// which calls.
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// Where vectors go, by axis, in the inputs' type: (batch_heads, padded_tokens, width). Where
/// shifts are given, (batch_heads, width) numbers of scratch, made ready for distances as
/// center does, with their squared lengths (batch_heads, padded_tokens).
struct Outputs {
  void* vectors[2];
  int widths[2];
  float* squared_lengths[2];
  float* centers[2];
};

/// False if these kernels do not serve the call, or if a tensor cannot be described to TMA; nothing
/// has been launched then that counts.
template <class T>
bool forward(const Params& p, const Outputs& to, cudaStream_t stream);
template <class T>
bool backward(const BackwardParams& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
