#pragma once

#include "sape2/dist/group.h"
#include "sape2/train/flat_parameters.h"

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace sape2::train {

/// Adds up gradients over processes while the backward pass goes on. The flat gradient is cut into
/// buckets; a bucket is sent as soon as all its parameters have theirs. Every process sends the
/// buckets in the same order, that in which a backward pass fills them: from the last layer's
/// weights to the first's, then biases, norms and encodings.
class GradientExchange {
 public:
  /// To be made on the stream on which backward passes run. Both must outlive it.
  GradientExchange(FlatParameters& parameters, dist::Group& group);

  /// Before the last backward pass of a step: from now on buckets are sent as they fill. `numbers`
  /// are added up too. `before_send` is called before gradients are read.
  void begin(const at::Tensor& numbers, std::function<void()> before_send);
  /// After it: sends what is left, and waits for all.
  void finish();

  /// How the gradient is cut: elements of each bucket, in the order of sending.
  struct Bucket {
    int64_t first_slot, end_slot;
    int64_t offset, elements;
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }

  /// For measurements: false sends everything at the end.
  void overlap(bool beside) { beside_ = beside; }

 private:
  void arrived(int64_t slot);
  void send_full();
  void send(const Bucket& bucket);

  FlatParameters& parameters_;
  dist::Group& group_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_slot_;
  std::vector<int64_t> missing_;  // a bucket: gradients that have not arrived
  std::size_t next_ = 0;          // bucket to send
  bool listening_ = false;
  bool beside_ = true;
  std::function<void()> before_send_;
  std::vector<dist::Group::Sum> sums_;
  // AccumulateGrad nodes live only as long as somebody holds them, and our hooks with them.
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes_;
};

}  // namespace sape2::train
