// Linear layers and MLPs as on a GPU, with formulas on the CPU for kernels and streams that are
// only noted. The gradients of weights are there when the queue is flushed, as on a GPU, and not
// before.
#include "sape2/ops/training.h"

#include "noting_guard.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <functional>
#include <optional>

namespace sape2::ops {

using at::Tensor;

bool fused_training(const Tensor&) {
  return true;
}
Tensor gelu(const Branch& x) {
  return at::gelu(x.value + x.bias);
}

namespace fused {
namespace {

std::size_t enough = 100;
std::vector<std::size_t> launched;  // how many weights' gradients at once
std::vector<c10::StreamId> summed;  // the streams that columns were summed on
int activated = 0;                  // how often the kernel of an MLP was called

}  // namespace

Tensor column_sums(const Tensor& x) {
  summed.push_back(test::current_stream);
  return x.sum(0);
}
bool linear_serves(const Tensor&, int64_t, int64_t) {
  return true;
}
Activated linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      bool differentiates) {
  ++activated;
  at::AutoGradMode on(differentiates);
  const Tensor z = at::linear(x, weight, bias).detach().requires_grad_(differentiates);
  const Tensor out = at::gelu(z);
  if (!differentiates) return {out, {}};
  return {out.detach(), torch::autograd::grad({out.sum()}, {z})[0]};
}
std::pair<Tensor, Tensor> linear_gelu_backward(const Tensor& dy, const Tensor& weight,
                                               const Tensor& derivative) {
  const Tensor dx = at::mm(dy, weight) * derivative;
  return {dx, dx.sum(0)};
}
bool weight_gradient_serves(const Tensor&, const Tensor&) {
  return true;
}
bool weight_gradients_suffice(const std::vector<WeightGradient>& gradients) {
  return gradients.size() >= enough;
}
void weight_gradients(const std::vector<WeightGradient>& gradients) {
  EXPECT_EQ(test::current_stream, 7);
  launched.push_back(gradients.size());
  for (const WeightGradient& gradient : gradients) {
    const Tensor made = at::mm(gradient.dy.t(), gradient.x).contiguous();
    std::memcpy(gradient.out.data_ptr().get(), made.data_ptr(), made.nbytes());
  }
}

}  // namespace fused

namespace {

using Tensors = std::vector<Tensor>;
using Layers = std::function<Tensor(const Tensors&)>;

const c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CPU,
                                                     new test::NotingGuard<c10::DeviceType::CPU>);
const c10::Stream kBeside(c10::Stream::UNSAFE, at::Device(at::kCPU), 7);

class FusedLayers : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    fused::enough = 100;
    fused::launched.clear();
    fused::summed.clear();
    fused::activated = 0;
    test::waits.clear();
  }
};

Tensors random(std::initializer_list<std::vector<int64_t>> shapes) {
  Tensors made;
  for (const auto& shape : shapes) made.push_back(at::randn(shape, at::kDouble).requires_grad_());
  return made;
}

/// The weights of two linear layers and an MLP, and x first.
Tensors of_layers() {
  return random({{2, 5, 8}, {12, 8}, {12}, {8, 12}, {16, 8}, {16}, {8, 16}, {8}});
}
Tensor fused_layers(const Tensors& in) {
  const Tensor tokens = linear_branch(linear(in[0], in[1], in[2]), in[3], {}).value;
  const Branch out = mlp(tokens, {in[4], in[5], in[6], in[7]});
  return (out.value + out.bias).square().sum();
}
Tensor formula_of_layers(const Tensors& in) {
  const Tensor tokens = at::linear(at::linear(in[0], in[1], in[2]), in[3]);
  return at::linear(at::gelu(at::linear(tokens, in[4], in[5])), in[6], in[7]).square().sum();
}

void expect_gradients_of(const Layers& formula, const Tensors& leaves) {
  Tensors copies;
  for (const Tensor& leaf : leaves) copies.push_back(leaf.detach().clone().requires_grad_());
  formula(copies).backward();
  for (std::size_t i = 0; i < leaves.size(); ++i)
    EXPECT_TRUE(at::allclose(leaves[i].grad(), copies[i].grad())) << "gradient " << i;
}

TEST_F(FusedLayers, FollowTheFormula) {
  const Tensors leaves = of_layers();
  fused_layers(leaves).backward();
  expect_gradients_of(formula_of_layers, leaves);
  EXPECT_EQ(fused::activated, 1);
  EXPECT_TRUE(fused::launched.empty());
  EXPECT_TRUE(test::waits.empty());
}

TEST_F(FusedLayers, LeaveGradientsToTheQueue) {
  const Tensors leaves = of_layers();
  const GradientsBeside gradients(kBeside);
  fused_layers(leaves).backward();
  EXPECT_TRUE(fused::launched.empty());
  gradients.join();
  EXPECT_EQ(fused::launched, std::vector<std::size_t>{4});
  EXPECT_EQ(fused::summed, std::vector<c10::StreamId>{7});
  EXPECT_EQ(test::waits.back(), "0 for 7");
  expect_gradients_of(formula_of_layers, leaves);
}

TEST_F(FusedLayers, FlushTheQueueWhenItHasEnough) {
  fused::enough = 3;
  const Tensors leaves = of_layers();
  const GradientsBeside gradients(kBeside);
  fused_layers(leaves).backward();
  EXPECT_EQ(fused::launched, std::vector<std::size_t>{3});
  gradients.join();
  EXPECT_EQ(fused::launched, (std::vector<std::size_t>{3, 1}));
  expect_gradients_of(formula_of_layers, leaves);
}

TEST_F(FusedLayers, AddToEarlierGradientsOnTheSpot) {
  const Tensors leaves = of_layers();
  for (int pass = 0; pass < 2; ++pass) {
    const GradientsBeside gradients(kBeside);
    fused_layers(leaves).backward();
    gradients.join();
  }
  EXPECT_EQ(fused::launched, std::vector<std::size_t>{4});
  EXPECT_EQ(fused::summed, (std::vector<c10::StreamId>{7, 0}));
  expect_gradients_of([](const Tensors& in) { return 2 * formula_of_layers(in); }, leaves);
}

// Autograd reads those gradients at once: to take them further back, to add or to copy them.
TEST_F(FusedLayers, ComputeOnTheSpotWhatAutogradReads) {
  Tensors leaves = random({{6, 8}, {12, 8}, {12}, {8, 12}});
  leaves.push_back(at::randn({8, 10}, at::kDouble).t().requires_grad_());
  const Layers layers = [](const Tensors& in) {
    Tensor tokens = linear(in[0], in[1] * 2, in[2] + 1);
    tokens = linear(tokens, in[3], in[0].select(0, 0));
    return linear_branch(tokens, in[4], {}).value.square().sum();
  };
  const GradientsBeside gradients(kBeside);
  layers(leaves).backward();
  EXPECT_EQ(fused::summed, (std::vector<c10::StreamId>{0, 0}));
  gradients.join();
  EXPECT_EQ(fused::launched, std::vector<std::size_t>{1});
  expect_gradients_of(
      [](const Tensors& in) {
        Tensor tokens = at::linear(in[0], in[1] * 2, in[2] + 1);
        tokens = at::linear(tokens, in[3], in[0].select(0, 0));
        return at::linear(tokens, in[4]).square().sum();
      },
      leaves);
}

TEST_F(FusedLayers, ComputeOnTheSpotWhereTheQueueIsGone) {
  const Tensors leaves = of_layers();
  std::optional<GradientsBeside> gradients(kBeside);
  const Tensor loss = fused_layers(leaves);
  gradients.reset();
  loss.backward();
  expect_gradients_of(formula_of_layers, leaves);
}

TEST_F(FusedLayers, RefuseASecondBackward) {
  const Tensors in = of_layers();
  const GradientsBeside gradients(kBeside);
  for (const Layers& layers :
       {Layers([](const Tensors& t) { return linear(t[0], t[1], t[2]).square().sum(); }),
        Layers([](const Tensors& t) {
          return mlp(t[0], {t[4], t[5], t[6], t[7]}).value.square().sum();
        })}) {
    const Tensor first = torch::autograd::grad({layers(in)}, {in[0]}, {}, true, true)[0];
    EXPECT_THROW(first.square().sum().backward(), c10::Error);
  }
  EXPECT_TRUE(fused::launched.empty());
}

// Weights that do not fit are refused by LibTorch's sentences, whatever the kernels would make of
// them.
TEST_F(FusedLayers, LeaveWhatDoesNotFitToLibTorch) {
  const Tensors in = of_layers();
  EXPECT_THROW(mlp(at::randn({2, 5, 12}, at::kDouble), {in[4], in[5], in[6], in[7]}), c10::Error);
  EXPECT_THROW(mlp(in[0], {in[4], in[2], in[6], in[7]}), c10::Error);
  EXPECT_THROW(mlp(in[0], {in[4], in[5], in[3], in[7]}), c10::Error);
  EXPECT_EQ(fused::activated, 0);
}

}  // namespace
}  // namespace sape2::ops
