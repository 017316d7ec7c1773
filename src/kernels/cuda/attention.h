#pragma once

#include "kernels/cuda/params.h"

#include <cuda_runtime.h>

#include <functional>

/// The attention kernels by element type; each is compiled in a file of its own.
namespace sape2::kernels::cuda {

template <class T>
void attention_forward(const AttentionParams& p, BiasForm form, cudaStream_t stream);

/// How a backward pass has left dq and the vectors' gradients to whoever goes on from there.
struct VectorGradients {
  bool wide;         // they are float32, not of the inputs' type
  bool before_keys;  // dk and dv are still to come; patches' dk will be added to what is there
};

struct GoOn {
  std::function<void(const VectorGradients&)> from;  // called once
  bool can_begin_dk = false;  // for all patches, so that it may be called before the keys' pass
};

/// dq, the vectors' gradients and dgain, then dk and dv.
template <class T>
void attention_backward(const BackwardParams& p, BiasForm form, cudaStream_t stream,
                        const GoOn& go_on);

}  // namespace sape2::kernels::cuda
