#pragma once

#include "kernels/cuda/host/params.h"

#include <cuda_runtime.h>

#include <functional>

/// The attention kernels by element type; each is compiled in a file of its own.
namespace sape2::kernels::cuda::sm80 {

template <class T>
void forward(const AttentionParams& p, BiasForm form, cudaStream_t stream);

/// dq, the vectors' gradients and dgain, then dk and dv.
template <class T>
void backward(const AttentionBackwardParams& p, BiasForm form, cudaStream_t stream,
              const BackwardContinuation& continuation);

}  // namespace sape2::kernels::cuda::sm80
