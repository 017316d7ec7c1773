#pragma once

#include "ops/training/kernels.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

namespace sape2::ops {

/// The gradients of linear layers' weights and biases, on a stream beside the backward pass. Those
/// of several weights are computed at once, so they wait here until there are enough of them.
class GradientQueue {
 public:
  explicit GradientQueue(const c10::Stream& stream) : stream_(stream) {}

  /// dyᵀ · x, matrices. With `may_wait`, its numbers are not there before join(), so whoever gets
  /// it must take it as it is.
  at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x, bool may_wait);
  at::Tensor bias_gradient(const at::Tensor& dy);

  /// Makes the current stream wait for all of them.
  void join();

 private:
  void flush();

  c10::Stream stream_;
  std::vector<fused::WeightGradient> waiting_;
};

/// The queue of the GradientsBeside that lives on this thread, or null.
std::shared_ptr<GradientQueue> current_gradient_queue();

}  // namespace sape2::ops
