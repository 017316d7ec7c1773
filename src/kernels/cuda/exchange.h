#pragma once

#include "kernels/cuda/params.h"

#include <cuda_runtime.h>

/// Axis vectors between a caller's layout, (sets, images, heads, patches, entries) in the inputs'
/// type, and the kernels' own, float32 (sets or 1, batch_heads, entries, padded_tokens).
namespace sape2::kernels::cuda {

struct ExchangeParams {
  Geometry geometry;
  int sets;
  bool add_sets;  // the kernels hold one set: the sum of all
  const void* given[2];
  float* own[2];
  void* gradients[2];  // null: not wanted
};

template <class T>
void import_vectors(const ExchangeParams& p, cudaStream_t stream);

/// From `own`, which holds gradients, to `gradients`.
template <class T>
void export_gradients(const ExchangeParams& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
