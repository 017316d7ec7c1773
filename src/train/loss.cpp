#include "train/loss.h"

#include <ATen/ATen.h>

namespace sape2::train {

at::Tensor summed_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                double smoothing) {
  const at::Tensor log_probabilities = at::log_softmax(logits, 1, at::kFloat);
  const auto classes = static_cast<double>(logits.size(1));
  const at::Tensor smoothed =
      smoothing == 0 ? targets : targets * (1 - smoothing) + smoothing / classes;
  return -(smoothed * log_probabilities).sum();
}

}  // namespace sape2::train
