#include "ops/training/gradient_queue.h"

#include "sape2/ops/training.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace sape2::ops {
namespace {

using at::Tensor;

thread_local std::shared_ptr<GradientQueue> living;

c10::Stream current_stream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void make_wait(const c10::Stream& stream, const c10::Stream& on) {
  c10::Event event(on.device_type());
  event.record(on);
  event.block(stream);
}

/// Does work on another stream, after what the current one has been given.
template <typename Work>
auto beside(const c10::Stream& stream, const Work& work) {
  make_wait(stream, current_stream(stream.device()));
  const c10::StreamGuard on(stream);
  return work();
}

}  // namespace

bool takes_over(const Tensor& parameter, at::ScalarType type) {
  return parameter.is_leaf() && !parameter.grad().defined() && parameter.scalar_type() == type &&
         parameter.is_contiguous();
}

Tensor GradientQueue::weight_gradient(const Tensor& dy, const Tensor& x) {
  if (!fused::weight_gradient_serves(dy, x)) {
    keep(dy);
    keep(x);
    return beside(stream_, [&] { return at::mm(dy.t(), x); });
  }
  // Where work is being recorded, so must the stream be before it gets memory of the recording's.
  Tensor gradient = beside(stream_, [&] {
    return at::empty({dy.size(1), x.size(1)}, x.options());
  });
  // Its memory is kept, not the tensor: a parameter takes a gradient over only from its sole owner.
  waiting_.push_back({dy, x, gradient.storage()});
  if (fused::weight_gradients_suffice(waiting_)) flush();
  return gradient;
}

Tensor GradientQueue::bias_gradient(const Tensor& dy) {
  keep(dy);
  return beside(stream_, [&] { return fused::column_sums(dy); });
}

void GradientQueue::flush() {
  if (waiting_.empty()) return;
  const auto gradients = std::exchange(waiting_, {});
  for (const fused::WeightGradient& gradient : gradients) {
    keep(gradient.dy);
    keep(gradient.x);
  }
  beside(stream_, [&] { fused::weight_gradients(gradients); });
}

void GradientQueue::join() {
  flush();
  // A stream that is being recorded cannot wait for one that has no part in that.
  if (read_.empty()) return;
  make_wait(current_stream(stream_.device()), stream_);
  read_.clear();
}

std::shared_ptr<GradientQueue> current_gradient_queue() {
  return living;
}

GradientsBeside::GradientsBeside(const c10::Stream& stream)
    : queue_(std::make_shared<GradientQueue>(stream)), outer_(std::exchange(living, queue_)) {}

GradientsBeside::~GradientsBeside() {
  living = outer_;
}

void GradientsBeside::join() const {
  queue_->join();
}

}  // namespace sape2::ops
