#pragma once

#include "ops/dispatcher/internal_ops.h"

namespace sape2::ops {

/// Attention of a projection's output as a back end for every device: that of its thirds.
struct PackedBackend {
  static Tensors forward(const PackedArguments& a);
  static Tensors backward(const BackwardInputs& in, const PackedArguments& a);
};

}  // namespace sape2::ops
