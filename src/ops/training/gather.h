#pragma once

#include "sape2/ops/training.h"

namespace sape2::ops {

/// gather_gradients() in one launch, for float32 and bfloat16.
void gather_on_gpu(const std::vector<GradientPiece>& pieces, const at::Tensor& flat, bool add);

}  // namespace sape2::ops
