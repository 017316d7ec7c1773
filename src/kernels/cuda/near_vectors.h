#pragma once

#include "kernels/cuda/params.h"

#include <cuda_runtime.h>

namespace sape2::kernels::cuda {

struct NearVectorParams {
  Geometry geometry;
  int sets;
  const float* vectors[2];  // by axis: (sets, batch_heads, entries, padded_tokens)
  int widths[2];            // entries to the next 16
  void* near[2];            // (sets, batch_heads, padded_tokens, width)
  float* norms[2];          // (sets, batch_heads, padded_tokens)
};

template <class T>
void near_vectors(const NearVectorParams& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
