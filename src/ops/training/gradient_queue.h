#pragma once

#include "ops/training/kernels.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

namespace sape2::ops {

/// Whether autograd makes a gradient of this type the parameter's own without a look at its
/// numbers: neither is it added to an earlier one, nor converted, nor copied into other strides,
/// nor does it go on to what the parameter was computed from.
bool takes_over(const at::Tensor& parameter, at::ScalarType type);

/// The gradients of linear layers' weights and biases, on a stream beside the backward pass. Those
/// of several weights are computed at once, so they wait here until there are enough of them. The
/// numbers are there after join(), so these gradients are only for parameters that takes_over.
class GradientQueue {
 public:
  explicit GradientQueue(const c10::Stream& stream) : stream_(stream) {}

  c10::Device device() const { return stream_.device(); }

  /// dyᵀ · x, matrices.
  at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x);
  /// The sums of the columns of dy.
  at::Tensor bias_gradient(const at::Tensor& dy);

  /// Makes the current stream, that of the backward pass, wait for all of them.
  void join();

 private:
  void keep(const at::Tensor& read) { read_.push_back(read.storage()); }
  void flush();

  c10::Stream stream_;
  std::vector<fused::WeightGradient> waiting_;
  // The memory that the work beside reads, kept until join(). Otherwise autograd adds to dy in
  // place as soon as nobody else holds it, and both would be given to other tensors, all that on
  // the stream of the backward pass, which does not wait for this one. (record_stream does not keep
  // autograd from adding, and what it was called for is not used again in the rest of a recording.)
  std::vector<c10::Storage> read_;
};

/// The queue of the GradientsBeside that lives on this thread, or null.
std::shared_ptr<GradientQueue> current_gradient_queue();

}  // namespace sape2::ops
