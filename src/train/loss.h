#pragma once

#include <ATen/core/Tensor.h>

namespace sape2::train {

/// The cross-entropy of logits `[B, classes]` against target probabilities `[B, classes]`, summed
/// over the images, after `smoothing` of each image's probability is spread over all classes.
at::Tensor summed_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                double smoothing = 0);

}  // namespace sape2::train
