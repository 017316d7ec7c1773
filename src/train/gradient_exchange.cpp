#include "train/gradient_exchange.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

// LibTorch's own Reducer, behind DistributedDataParallel, has buffers of its own that gradients are
// copied to and from, and Debian ships only some of its headers. Our gradients lie side by side
// already.
namespace sape2::train {
namespace {

// Small enough that several are on their way during a backward pass, large enough for the network.
constexpr int64_t kSmallestBucket = 64 << 10, kLargestBucket = 6 << 20;  // elements
constexpr int64_t kWantedBuckets = 8;

class Hook : public torch::autograd::FunctionPostHook {
 public:
  explicit Hook(std::function<void()> call) : call_(std::move(call)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

GradientExchange::GradientExchange(FlatParameters& parameters, dist::Group& group)
    : parameters_(parameters), group_(group), bucket_of_slot_(parameters.slots().size()) {
  const int64_t wanted =
      std::clamp(parameters.size() / kWantedBuckets, kSmallestBucket, kLargestBucket);
  const auto& slots = parameters.slots();
  const auto count = static_cast<int64_t>(slots.size());
  const auto begin_of = [&](int64_t slot) {
    return slot < count ? slots[static_cast<std::size_t>(slot)].offset : parameters.size();
  };
  // Backward passes fill each section from its end; weights that decay are the large first one.
  const auto cut = [&](int64_t first, int64_t end) {
    while (end > first) {
      int64_t begin = end - 1;
      while (begin > first && begin_of(end) - begin_of(begin) < wanted) --begin;
      buckets_.push_back({begin, end, begin_of(begin), begin_of(end) - begin_of(begin)});
      end = begin;
    }
  };
  int64_t decayed = 0;
  while (decayed < count && begin_of(decayed) < parameters.decayed()) ++decayed;
  cut(0, decayed);
  cut(decayed, count);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (int64_t slot = buckets_[b].first_slot; slot < buckets_[b].end_slot; ++slot) {
      bucket_of_slot_[static_cast<std::size_t>(slot)] = b;
    }
  }
  for (int64_t slot = 0; slot < count; ++slot) {
    auto node =
        torch::autograd::impl::grad_accumulator(slots[static_cast<std::size_t>(slot)].parameter);
    node->add_post_hook(std::make_unique<Hook>([this, slot] { arrived(slot); }));
    nodes_.push_back(std::move(node));
  }
}

void GradientExchange::begin(const at::Tensor& numbers, std::function<void()> before_send) {
  before_send_ = std::move(before_send);
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.end_slot - bucket.first_slot);
  next_ = 0;
  sums_.clear();
  sums_.push_back(group_.begin_sum(numbers));
  listening_ = true;
}

void GradientExchange::arrived(int64_t slot) {
  if (!listening_) return;
  --missing_[bucket_of_slot_[static_cast<std::size_t>(slot)]];
  if (beside_) send_full();
}

void GradientExchange::send_full() {
  while (next_ < buckets_.size() && missing_[next_] == 0) send(buckets_[next_++]);
}

void GradientExchange::send(const Bucket& bucket) {
  const at::NoGradGuard no_grad;
  if (before_send_) before_send_();
  parameters_.collect_gradients(bucket.first_slot, bucket.end_slot);
  sums_.push_back(
      group_.begin_sum(parameters_.gradients().narrow(0, bucket.offset, bucket.elements)));
}

void GradientExchange::finish() {
  listening_ = false;
  // What no gradient came for counts as zero.
  while (next_ < buckets_.size()) send(buckets_[next_++]);
  for (dist::Group::Sum& sum : sums_) sum.wait();
  parameters_.all_collected();
}

}  // namespace sape2::train
