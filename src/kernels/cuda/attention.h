#pragma once

#include "kernels/cuda/params.h"

#include <cuda_runtime.h>

/// The attention kernels by element type; each is compiled in a file of its own.
namespace sape2::kernels::cuda {

template <class T>
void attention_forward(const AttentionParams& p, BiasForm form, cudaStream_t stream);

/// dq, the vectors' gradients and dgain, then dk and dv.
template <class T>
void attention_backward(const BackwardParams& p, BiasForm form, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
