#include "sape2/ops/training.h"

#include "sape2/ops/ops.h"

#include "support/gpu.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>

namespace sape2::ops {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

Tensor numbers(at::IntArrayRef shape, int seed, double spread = 1) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  const Tensor index = at::arange(count, at::kDouble);
  return ((index * (1.7 + 0.31 * seed) + seed).sin() * 12345.678).frac().view(shape) * spread;
}

/// Outputs and gradients of a function in one type on one device; the loss weighs every output.
Tensors outputs_and_gradients(const Function& function, const Tensors& inputs, at::ScalarType type,
                              at::Device device) {
  Tensors leaves;
  for (const Tensor& input : inputs)
    leaves.push_back(input.defined() ? input.to(device, type).requires_grad_() : Tensor());
  Tensors results = function(leaves);
  Tensor loss = at::zeros({}, at::device(device).dtype(at::kDouble));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor weight = numbers(results[i].sizes(), 90 + static_cast<int>(i));
    loss = loss + (results[i].to(at::kDouble) * weight.to(device)).sum();
  }
  loss.backward();
  for (Tensor& result : results) result = result.detach();
  for (const Tensor& leaf : leaves)
    if (leaf.defined() && leaf.grad().defined()) results.push_back(leaf.grad());
  for (Tensor& result : results) result = result.to(at::kCPU, at::kDouble);
  return results;
}

/// The error against float64 is at most twice that of the formula in the same type.
void expect_within_twice_the_formula(const Function& function, const Tensors& inputs,
                                     at::ScalarType type, at::Device device) {
  const Tensors fused = outputs_and_gradients(function, inputs, type, device);
  Tensors plain, exact;
  {
    const ReferenceGuard formula;
    plain = outputs_and_gradients(function, inputs, type, device);
    Tensors rounded;
    for (const Tensor& input : inputs)
      rounded.push_back(input.defined() ? input.to(type).to(at::kDouble) : Tensor());
    exact = outputs_and_gradients(function, rounded, at::kDouble, device);
  }
  ASSERT_EQ(fused.size(), exact.size());
  const double slack = type == at::kFloat ? 1e-6 : 1e-3;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double size = exact[i].norm().item<double>();
    const double error = (fused[i] - exact[i]).norm().item<double>();
    const double formula = (plain[i] - exact[i]).norm().item<double>();
    EXPECT_LE(error, 2 * formula + slack * size) << "result " << i << ", formula " << formula;
  }
}

void check_everywhere(const Function& function, const Tensors& inputs) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    expect_within_twice_the_formula(function, inputs, type, at::kCPU);
    if (test::has_gpu()) expect_within_twice_the_formula(function, inputs, type, at::kCUDA);
  }
}

struct Shape {
  int64_t images, tokens, width;
};
constexpr Shape kShapes[] = {{3, 5, 24},   {2, 64, 192}, {9, 65, 384}, {1, 7, 768},
                             {2, 3, 1024}, {1, 1, 4},    {5, 2, 30}};

TEST(AddAndNorm, FollowsTheFormula) {
  for (const auto& [images, tokens, width] : kShapes) {
    for (const bool with_bias : {false, true}) {
      for (const bool with_factor : {false, true}) {
        const Tensor factor = (numbers({images}, 8).abs() + 0.5).to(at::kFloat);
        const Function function = [&](const Tensors& in) -> Tensors {
          const Branch branch{in[1], in[2], with_factor ? factor.to(in[0].device()) : Tensor()};
          const auto [sum, normed] = add_and_norm(in[0], branch, in[3], in[4], 1e-6);
          return {sum, normed};
        };
        check_everywhere(
            function, {numbers({images, tokens, width}, 1, 2), numbers({images, tokens, width}, 2),
                       with_bias ? numbers({width}, 3) : Tensor(), numbers({width}, 4) + 1,
                       numbers({width}, 5)});
      }
    }
  }
}

TEST(AddAndNorm, NormalisesWhereNothingIsAdded) {
  for (const auto& [images, tokens, width] : kShapes) {
    const Function function = [](const Tensors& in) -> Tensors {
      return {add_and_norm(in[0], {}, in[1], in[2], 1e-6).second};
    };
    check_everywhere(function, {numbers({images, tokens, width}, 1, 2), numbers({width}, 4) + 1,
                                numbers({width}, 5)});
  }
}

TEST(Gelu, FollowsTheFormula) {
  for (const auto& [images, tokens, width] : kShapes) {
    for (const bool with_bias : {false, true}) {
      const Function function = [](const Tensors& in) -> Tensors {
        return {gelu({in[0], in[1], {}})};
      };
      check_everywhere(function, {numbers({images, tokens, width}, 1, 4),
                                  with_bias ? numbers({width}, 3) : Tensor()});
    }
  }
}

TEST(Linear, FollowsTheFormula) {
  for (const auto& [images, tokens, width] : kShapes) {
    for (const int64_t out : {int64_t{8}, int64_t{10}, 3 * width}) {
      const Function function = [](const Tensors& in) -> Tensors {
        return {linear(in[0], in[1], in[2])};
      };
      check_everywhere(function, {numbers({images, tokens, width}, 1),
                                  numbers({out, width}, 2, 0.2), numbers({out}, 3)});
    }
  }
}

TEST(Mlp, FollowsTheFormula) {
  // The last has rows enough for the fused kernels.
  for (const auto& [images, tokens, width] : {Shape{3, 5, 24}, {2, 7, 30}, {64, 65, 192}}) {
    const Function function = [](const Tensors& in) -> Tensors {
      const Branch made = mlp(in[0], {in[1], in[2], in[3], in[4]});
      return {made.bias.defined() ? made.value + made.bias : made.value};
    };
    check_everywhere(function, {numbers({images, tokens, width}, 1),
                                numbers({2 * width, width}, 2, 0.2), numbers({2 * width}, 3),
                                numbers({width, 2 * width}, 4, 0.2), numbers({width}, 5)});
  }
}

/// Gradients of layers whose weights are `weights`, after as many backward passes.
Tensors gradients_of_layers(const Tensor& x, const Tensors& weights, int passes, bool beside) {
  const auto stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(x.device());
  Tensors leaves;
  for (const Tensor& weight : weights) leaves.push_back(weight.detach().requires_grad_());
  for (int pass = 0; pass < passes; ++pass) {
    std::optional<GradientsBeside> gradients;
    if (beside) gradients.emplace(stream);
    Tensor tokens = x;
    for (const Tensor& leaf : leaves) tokens = linear_branch(tokens, leaf, {}).value;
    (tokens * tokens).sum().backward();
    if (gradients) gradients->join();
  }
  Tensors result;
  for (const Tensor& leaf : leaves) result.push_back(leaf.grad());
  return result;
}

TEST(GradientsBeside, AreThoseOfTheBackwardPass) {
  if (!test::has_gpu()) GTEST_SKIP() << "there is no GPU here";
  const auto on = at::device(at::kCUDA).dtype(at::kBFloat16);
  const Tensor x = numbers({32, 64, 192}, 1).to(on);
  Tensors weights;
  for (int layer = 0; layer < 3; ++layer)
    weights.push_back(numbers({192, 192}, 2 + layer, 0.1).to(on));
  for (const int passes : {1, 2}) {
    const Tensors alone = gradients_of_layers(x, weights, passes, false);
    const Tensors beside = gradients_of_layers(x, weights, passes, true);
    const Tensors again = gradients_of_layers(x, weights, passes, true);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(at::equal(beside[i], again[i]));
      const Tensor error = (beside[i].to(at::kDouble) - alone[i].to(at::kDouble)).norm();
      EXPECT_LE(error.item<double>(), 1e-2 * alone[i].to(at::kDouble).norm().item<double>());
    }
  }
}

void expect_close(const Tensors& given, const Tensors& wanted) {
  ASSERT_EQ(given.size(), wanted.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    EXPECT_LE((given[i] - wanted[i]).norm().item<double>(), 1e-4 * wanted[i].norm().item<double>())
        << "gradient " << i;
}

/// Gradients of `leaves` of a loss, the work beside long after that of the backward pass.
Tensors gradients_late(const std::function<Tensor(const Tensors&)>& loss, const Tensors& values,
                       bool beside) {
  const auto device = values.front().device();
  const auto stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(device);
  Tensors leaves;
  for (const Tensor& value : values) leaves.push_back(value.clone().requires_grad_());
  std::optional<GradientsBeside> gradients;
  if (beside) gradients.emplace(stream);
  const Tensor made = loss(leaves);
  {
    const c10::StreamGuard on(stream);
    Tensor busy = at::ones({4096, 4096}, at::device(device).dtype(at::kFloat));
    for (int i = 0; i < 20; ++i) busy = at::mm(busy, busy).clamp_max_(1);
  }
  made.backward();
  if (gradients) gradients->join();
  Tensors result;
  for (const Tensor& leaf : leaves) result.push_back(leaf.grad());
  return result;
}

// The residual stream and the branch of a block have the same gradient, and LibTorch adds to it
// what comes back through the norm before the branch.
TEST(GradientsBeside, ReadGradientsThatAreAddedTo) {
  SAPE2_NEEDS_GPU();
  const auto on = at::device(at::kCUDA).dtype(at::kFloat);
  const auto loss = [](const Tensors& in) {
    const Tensor tokens = in[0] * 1;
    const Tensor normed = add_and_norm(tokens, {}, in[3], in[4], 1e-6).second;
    const Branch branch{linear(normed, in[1], in[2]), {}, {}};
    const auto [sum, again] = add_and_norm(tokens, branch, in[3], in[4], 1e-6);
    return (sum * sum * again).sum();
  };
  const Tensors values{numbers({16, 64, 192}, 1).to(on), numbers({192, 192}, 2, 0.1).to(on),
                       numbers({192}, 3).to(on), (numbers({192}, 4) + 1).to(on),
                       numbers({192}, 5).to(on)};
  expect_close(gradients_late(loss, values, true), gradients_late(loss, values, false));
}

// A weight that was computed, or has another type or other strides than its gradient: autograd
// reads the gradient as soon as it gets it.
TEST(GradientsBeside, DoNotWaitWhereAutogradReadsThem) {
  SAPE2_NEEDS_GPU();
  const auto on = at::device(at::kCUDA).dtype(at::kFloat);
  const auto loss = [](const Tensors& in) {
    Tensor tokens = linear(in[0], in[1] * 2, in[2] + 1);
    tokens = linear_branch(tokens, in[3], {}).value;
    return (tokens * tokens).sum();
  };
  const Tensors values{numbers({16, 64, 192}, 1).to(on), numbers({192, 192}, 2, 0.1).to(on),
                       numbers({192}, 3).to(on), numbers({192, 192}, 4, 0.1).to(on).t()};
  expect_close(gradients_late(loss, values, true), gradients_late(loss, values, false));
}

TEST(TrainingFunctions, RefuseASecondBackward) {
  SAPE2_NEEDS_GPU();
  const auto on = at::device(at::kCUDA).dtype(at::kBFloat16);
  const Tensor weight = numbers({64, 64}, 2, 0.1).to(on).requires_grad_();
  const Tensor bias = numbers({64}, 3).to(on).requires_grad_();
  const std::function<Tensor(const Tensor&)> functions[] = {
      [&](const Tensor& x) { return linear(x, weight, bias); },
      [&](const Tensor& x) {
        return mlp(x, {weight, bias, weight, bias}).value;
      },
      [&](const Tensor& x) {
        return gelu({x, bias, {}});
      },
      [&](const Tensor& x) {
        return add_and_norm(x, {x, bias, {}}, bias, bias, 1e-6).second;
      },
      [&](const Tensor& x) {
        const Tensor logits = x.flatten(0, 1);
        return soft_cross_entropy(logits, at::full_like(logits, 1.0 / 64, at::kFloat), 1);
      }};
  for (const auto& function : functions) {
    const Tensor x = numbers({64, 65, 64}, 1).to(on).requires_grad_();
    const Tensor out = function(x).square().sum();
    const Tensor first = torch::autograd::grad({out}, {x}, {}, true, /*create_graph=*/true)[0];
    EXPECT_THROW(first.square().sum().backward(), c10::Error);
  }
}

TEST(SplitHeads, GivesThirdsAndTakesBackTheirGradients) {
  const Function function = [](const Tensors& in) -> Tensors {
    const auto [q, k, v] = split_heads(in[0], 4);
    return {q, k * 2, attention(q, k, v)};
  };
  check_everywhere(function, {numbers({3, 9, 96}, 1)});
  const Tensor packed = numbers({2, 5, 24}, 1);
  const auto [q, k, v] = split_heads(packed, 2);
  EXPECT_TRUE(q.is_alias_of(packed));
  EXPECT_TRUE(at::equal(v[1][1][3], packed[1][3].narrow(0, 20, 4)));
}

TEST(SplitHeads, AttentionLeavesItsGradientsPacked) {
  Tensors devices{at::zeros({1})};
  if (test::has_gpu()) devices.push_back(at::zeros({1}, at::kCUDA));
  for (const Tensor& device : devices) {
    const Tensor packed = numbers({2, 6, 96}, 1).to(device.device(), at::kFloat).requires_grad_();
    const auto [q, k, v] = split_heads(packed, 2);
    const Tensor out = attention(q, k, v);
    EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
    out.sum().backward();
    EXPECT_TRUE(packed.grad().is_contiguous());
  }
}

TEST(RotaryAttention, FollowsTheFormula) {
  using Angles = Rotation::Angles;
  const struct {
    int64_t images, heads, head_size;
    Grid grid;
  } cases[] = {
      {3, 2, 16, {3, 5, 1}}, {2, 6, 64, {8, 8, 0}}, {5, 1, 4, {1, 1, 0}}, {2, 3, 20, {4, 2, 2}}};
  for (const auto& [images, heads, head_size, grid] : cases) {
    for (const Angles angles : {Angles::raster, Angles::axial, Angles::mixed}) {
      const Function function = [&, heads = heads, grid = grid](const Tensors& in) -> Tensors {
        const auto [q, k, v] = split_heads(in[0], heads);
        // Frequencies are never narrower than float32.
        const auto frequencies = [&](const Tensor& f) {
          if (angles != Angles::mixed) return Tensor();
          return f.scalar_type() == at::kDouble ? f : f.to(at::kFloat);
        };
        const Rotation rotation{angles, frequencies(in[1]), frequencies(in[2])};
        return {rotary_attention(q, k, v, grid, rotation)};
      };
      check_everywhere(function, {numbers({images, grid.tokens(), 3 * heads * head_size}, 1, 2),
                                  numbers({heads, head_size / 2}, 2, 0.5),
                                  numbers({heads, head_size / 2}, 3, 0.5)});
    }
  }
}

TEST(RotaryAttention, LeavesItsInputsAloneAndItsGradientsPacked) {
  Tensors devices{at::zeros({1})};
  if (test::has_gpu()) devices.push_back(at::zeros({1}, at::kCUDA));
  for (const Tensor& device : devices) {
    const Tensor packed = numbers({2, 6, 96}, 1).to(device.device(), at::kFloat).requires_grad_();
    const Tensor before = packed.detach().clone();
    const auto [q, k, v] = split_heads(packed, 2);
    const Tensor out = rotary_attention(q, k, v, {2, 3, 0}, {Rotation::Angles::axial, {}, {}});
    EXPECT_TRUE(
        at::allclose(out, attention(rope2d(q, {2, 3, 0}), rope2d(k, {2, 3, 0}), v), 1e-5, 1e-6));
    out.sum().backward();
    EXPECT_TRUE(at::equal(packed.detach(), before));
    EXPECT_TRUE(packed.grad().is_contiguous());
  }
}

TEST(SoftCrossEntropy, FollowsTheFormula) {
  for (const int64_t classes : {2, 10, 33, 1000}) {
    for (const int64_t images : {1, 7, 128}) {
      const Tensor targets = at::softmax(numbers({images, classes}, 6, 9), 1).to(at::kFloat);
      const Function function = [&](const Tensors& in) -> Tensors {
        return {soft_cross_entropy(in[0], targets.to(in[0].device()), 0.25)};
      };
      check_everywhere(function, {numbers({images, classes}, 1, 5)});
    }
  }
}

TEST(GatherGradients, CopiesAndAdds) {
  Tensors flats{at::full({64}, 7.0f)};
  if (test::has_gpu()) flats.push_back(at::full({64}, 7.0f, at::kCUDA));
  for (const Tensor& flat : flats) {
    const auto on = flat.device();
    const Tensor wide = numbers({3, 5}, 1).to(on, at::kFloat);
    const Tensor narrow = numbers({19}, 2).to(on, at::kBFloat16).narrow(0, 1, 17);
    gather_gradients({{wide, 0}, {narrow, 16}}, flat, false);
    gather_gradients({{wide, 0}}, flat, true);
    EXPECT_TRUE(at::equal(flat.narrow(0, 0, 15), (wide + wide).flatten()));
    EXPECT_TRUE(at::equal(flat.narrow(0, 16, 17), narrow.to(at::kFloat)));
    EXPECT_EQ(flat[15].item<float>(), 7);
    EXPECT_EQ(flat[33].item<float>(), 7);
  }
}

}  // namespace
}  // namespace sape2::ops
