#pragma once

#include "kernels/cuda/host/params.h"

#include <cuda_runtime.h>

namespace sape2::kernels::cuda::axis_vectors {

struct CenterParams {
  Geometry geometry;
  int sets;
  const float* from[2];  // by axis: (sets, batch_heads, padded_tokens, width)
  int widths[2];         // entries to the next 16
  void* centered[2];     // the same, shifted and rounded
  float* norms[2];       // (sets, batch_heads, padded_tokens)
};

/// Overlaps the kernel launched before, whose vectors these are.
template <class T>
void center(const CenterParams& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::axis_vectors
