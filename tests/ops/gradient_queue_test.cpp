// The queue of gradients on a device that only notes which stream waits for which; its tensors are
// the CPU's.
#include "ops/training/gradient_queue.h"

#include "sape2/ops/training.h"

#include "noting_guard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <thread>
#include <utility>

namespace sape2::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using Tensors = torch::autograd::variable_list;

using test::current_stream;
using test::waits;

constexpr auto kNoted = c10::DeviceType::FPGA;
const c10::impl::DeviceGuardImplRegistrar registered(kNoted, new test::NotingGuard<kNoted>);

const c10::Stream kBeside(c10::Stream::UNSAFE, {kNoted, -1}, 7);

class GradientQueueTest : public testing::Test {
 protected:
  void SetUp() override { waits.clear(); }
};

TEST_F(GradientQueueTest, WorksBesideAndIsJoined) {
  GradientQueue queue(kBeside);
  const at::Tensor dy = at::rand({5, 3}), x = at::rand({5, 2});
  const at::Tensor gradient = queue.weight_gradient(dy, x);
  EXPECT_TRUE(at::equal(gradient, at::mm(dy.t(), x)));
  EXPECT_EQ(waits, std::vector<std::string>{"7 for 0"});
  EXPECT_EQ(current_stream, 0);
  waits.clear();
  queue.join();
  EXPECT_EQ(waits, std::vector<std::string>{"0 for 7"});
}

// What is being recorded must not wait for a stream that has no part in it.
TEST_F(GradientQueueTest, WaitsForNothingWhereNothingWasDone) {
  GradientQueue queue(kBeside);
  queue.join();
  queue.weight_gradient(at::rand({5, 3}), at::rand({5, 2}));
  queue.join();
  waits.clear();
  queue.join();
  EXPECT_TRUE(waits.empty());
}

TEST_F(GradientQueueTest, HoldsWhatItReadsUntilItIsJoined) {
  GradientQueue queue(kBeside);
  const at::Tensor dy = at::rand({2, 5, 3}), x = at::rand({10, 2});
  queue.weight_gradient(dy.view({10, 3}), x);
  EXPECT_EQ(dy.storage().use_count(), 2);
  EXPECT_EQ(x.storage().use_count(), 2);
  queue.join();
  EXPECT_EQ(dy.storage().use_count(), 1);
  EXPECT_EQ(x.storage().use_count(), 1);
}

TEST_F(GradientQueueTest, IsThatOfTheInnermostLivingScopeOfTheThread) {
  EXPECT_EQ(current_gradient_queue(), nullptr);
  std::weak_ptr<GradientQueue> gone;
  {
    const GradientsBeside outer(kBeside);
    const auto queue = current_gradient_queue();
    ASSERT_NE(queue, nullptr);
    {
      const GradientsBeside inner(kBeside);
      gone = current_gradient_queue();
      EXPECT_NE(gone.lock(), queue);
    }
    EXPECT_EQ(current_gradient_queue(), queue);
    // Whoever goes back later finds none, and what waited is dropped.
    EXPECT_TRUE(gone.expired());
    std::thread([] { EXPECT_EQ(current_gradient_queue(), nullptr); }).join();
  }
  EXPECT_EQ(current_gradient_queue(), nullptr);
}

/// Its gradient is a new tensor of some type, whose memory is kept.
struct GivesGradient : Function<GivesGradient> {
  static inline c10::Storage memory;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t type) {
    context->saved_data["sizes"] = x.sizes();
    context->saved_data["type"] = type;
    return at::zeros({});
  }
  static Tensors backward(AutogradContext* context, const Tensors&) {
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const at::Tensor gradient = at::ones(context->saved_data["sizes"].toIntVector(), type);
    memory = gradient.storage();
    return {gradient, at::Tensor()};
  }
};

TEST(TakesOver, IsTrueWhereAutogradDoesNotTouchAGradient) {
  const at::Tensor leaf = at::rand({3, 2}).requires_grad_();
  const at::Tensor added = at::rand({3, 2}).requires_grad_();
  added.mutable_grad() = at::zeros({3, 2});
  const at::Tensor turned = at::rand({2, 3}).t().requires_grad_();
  const at::Tensor source = at::rand({3, 2}).requires_grad_();
  const struct {
    at::Tensor given, owner;
    at::ScalarType type;
    bool takes;
  } cases[] = {{leaf, leaf, at::kFloat, true},
               {added, added, at::kFloat, false},
               {turned, turned, at::kFloat, false},
               {2 * source, source, at::kFloat, false},
               {at::rand({3, 2}).requires_grad_(), {}, at::kBFloat16, false}};
  for (const auto& [given, owner, type, takes] : cases) {
    EXPECT_EQ(takes_over(given, type), takes);
    GivesGradient::apply(given, static_cast<int64_t>(type)).backward();
    const at::Tensor gradient = (owner.defined() ? owner : given).grad();
    EXPECT_EQ(gradient.data_ptr() == GivesGradient::memory.data(), takes);
  }
}

/// Keeps the memory of the gradient that it gets; gives three times as much.
struct KeepsGradient : Function<KeepsGradient> {
  static inline c10::Storage memory;

  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static Tensors backward(AutogradContext*, const Tensors& grads) {
    memory = grads[0].storage();
    return {3 * grads[0]};
  }
};
/// The same tensor is the gradient of both.
struct GivesBoth : Function<GivesBoth> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return a + b;
  }
  static Tensors backward(AutogradContext*, const Tensors& grads) {
    const at::Tensor gradient = 2 * grads[0];
    return {gradient, gradient};
  }
};

// As in a block, whose residual stream and branch have the same gradient.
TEST(Autograd, DoesNotAddToAGradientWhoseMemoryIsKept) {
  const at::Tensor x = at::rand({4}).requires_grad_();
  const at::Tensor tokens = x * 1;
  GivesBoth::apply(KeepsGradient::apply(tokens), tokens).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({4}, 8.0F)));
  EXPECT_EQ(*static_cast<const float*>(std::as_const(KeepsGradient::memory).data()), 2.0F);
}

}  // namespace
}  // namespace sape2::ops
