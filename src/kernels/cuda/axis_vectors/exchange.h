#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/params.h"

#include <cuda_runtime.h>

#include <array>

/// Axis vectors between a caller's layout, (sets, images, heads, patches, entries) in the inputs'
/// type, and the kernels' own.
namespace sape2::kernels::cuda::axis_vectors {

template <class T>
void import_vectors(const Geometry& geometry, int sets, const std::array<const void*, 2>& given,
                    const VectorPlaces<void*>& own, cudaStream_t stream);

/// From the kernels' own gradients to a caller's; null: not wanted.
template <class T>
void export_gradients(const Geometry& geometry, int sets, const VectorPlaces<const void*>& own,
                      const std::array<void*, 2>& gradients, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::axis_vectors
