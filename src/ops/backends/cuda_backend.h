#pragma once

#include "ops/dispatcher/internal_ops.h"

namespace sape2::ops {

/// The fused kernels on NVIDIA GPUs, for float32, bfloat16 and float16; everything else, and
/// everything while a ReferenceGuard lives, runs on the plain formulas.
struct CudaBackend {
  /// Bytes a head of axis vectors that the kernels would rather keep than make again.
  static int64_t bytes_to_keep(const Sape2Arguments& a);

  static Tensors forward(const BiasedArguments& a);
  static Tensors forward(const Sape2Arguments& a);
  static Tensors forward(const CopeArguments& a);
  static Tensors forward(const VectorArguments& a);
  static Tensors forward(const BiasArguments& a);
  static Tensors backward(const BackwardInputs& in, const BiasedArguments& a);
  static Tensors backward(const BackwardInputs& in, const Sape2Arguments& a);
  static Tensors backward(const BackwardInputs& in, const CopeArguments& a);
  static Tensors backward(const BackwardInputs& in, const VectorArguments& a);
  static Tensors backward(const BackwardInputs& in, const BiasArguments& a);
};

}  // namespace sape2::ops
