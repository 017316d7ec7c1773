#pragma once

#include <ATen/core/Tensor.h>

namespace sape2::train {

/// The cross-entropy of logits `[B, classes]` against target probabilities `[B, classes]`, summed
/// over the images, in float32.
at::Tensor summed_cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace sape2::train
