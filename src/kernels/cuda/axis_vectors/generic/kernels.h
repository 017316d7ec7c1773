#pragma once

#include "kernels/cuda/axis_vectors/params.h"

#include <cuda_runtime.h>

/// Stage 1 for every size that the library takes.
namespace sape2::kernels::cuda::axis_vectors::generic {

template <class T>
void forward(const ForwardParams& p, cudaStream_t stream);
template <class T>
void backward(const BackwardParams& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::axis_vectors::generic
