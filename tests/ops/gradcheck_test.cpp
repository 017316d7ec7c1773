// Gradients of every operator against central differences, in float64.
#include "support/gradcheck.h"

#include "sape2/ops/ops.h"

#include "ops/operators/autograd.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

namespace sape2::testing {
namespace {

const ops::Grid kGrid{2, 3, 1};
constexpr int64_t kHeads = 2, kHeadSize = 4;

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble);
}
at::Tensor tokens() {
  return random({1, kHeads, kGrid.tokens(), kHeadSize});
}

TEST(Gradcheck, Sape2AttentionInEveryModeSpanAndForm) {
  at::manual_seed(11);
  for (const std::string mode : {"q", "k", "qk"})
    for (const std::string span : {"suffix", "between"})
      for (const std::string form : {"distance", "direct", "paths"})
        for (const bool inside : {true, false})
          for (const bool own_tables : {false, true}) {
            std::vector<int64_t> table = {5, kHeadSize};
            if (own_tables) table.insert(table.begin(), kHeads);
            if (mode == "qk") table.insert(table.begin(), 2);
            const auto run = [&](const std::vector<at::Tensor>& x) {
              return ops::sape2_attention(
                  x[0], x[1], x[2], x[3], x[4], kGrid,
                  {.mode = mode, .span = span, .gate_scale = x[5], .gate_offset = x[6]}, form,
                  {.scale = 0.7, .gain = x[7], .bias_inside = inside});
            };
            EXPECT_EQ(
                gradient_mismatch(run, {tokens(), tokens(), tokens(), random(table), random(table),
                                        random({kHeads}), random({}), random({kHeads})}),
                "")
                << mode << " " << span << " " << form << (inside ? " inside" : " outside")
                << (own_tables ? " own tables" : "");
          }
}

TEST(Gradcheck, Sape2Vectors) {
  at::manual_seed(12);
  for (const bool second : {false, true}) {
    const auto run = [&](const std::vector<at::Tensor>& x) {
      const auto [ux, uy] = ops::sape2_vectors(x[0], x[1], x[2], x[3], kGrid, {.mode = "q"});
      return second ? uy : ux;  // each alone: the other's gradient is not defined then
    };
    EXPECT_EQ(gradient_mismatch(
                  run, {tokens(), tokens(), random({4, kHeadSize}), random({4, kHeadSize})}),
              "");
  }
}

// Of the two outputs, one then depends on nothing that has a gradient.
TEST(Gradcheck, Sape2VectorsOfOneTableAlone) {
  at::manual_seed(16);
  const at::Tensor q = tokens(), k = tokens(), other = random({4, kHeadSize});
  for (const bool along_x : {true, false}) {
    const auto run = [&](const std::vector<at::Tensor>& x) {
      const auto [ux, uy] = ops::sape2_vectors(q, k, along_x ? x[0] : other, along_x ? other : x[0],
                                               kGrid, {.mode = "k"});
      return at::cat({ux.flatten(), uy.flatten()});
    };
    EXPECT_EQ(gradient_mismatch(run, {random({4, kHeadSize})}), "");
  }
}

TEST(Gradcheck, AttentionFromGivenVectors) {
  at::manual_seed(13);
  for (const bool direct : {false, true})
    for (const bool two : {false, true}) {
      std::vector<int64_t> x_shape = {1, kHeads, 6, 3}, y_shape = {1, kHeads, 6, 2};
      if (two) x_shape.insert(x_shape.begin(), 2), y_shape.insert(y_shape.begin(), 2);
      const auto run = [&](const std::vector<at::Tensor>& x) {
        const ops::BiasOptions bias{.gain = x[5], .bias_inside = two};
        return direct ? ops::axial_attention(x[0], x[1], x[2], x[3], x[4], kGrid, bias)
                      : ops::distance_attention(x[0], x[1], x[2], x[3], x[4], kGrid, bias);
      };
      EXPECT_EQ(gradient_mismatch(run, {tokens(), tokens(), tokens(), random(x_shape),
                                        random(y_shape), random({})}),
                "");
    }
}

TEST(Gradcheck, Bias) {
  at::manual_seed(14);
  for (const std::string form : {"distance", "direct"}) {
    const auto run = [&](const std::vector<at::Tensor>& x) {
      return ops::sape2_bias(x[0], x[1], x[2], x[3], kGrid, {.mode = "k", .span = "between"}, form);
    };
    EXPECT_EQ(gradient_mismatch(
                  run, {tokens(), tokens(), random({5, kHeadSize}), random({5, kHeadSize})}),
              "");
  }
}

TEST(Gradcheck, PlainCopeAndRotary) {
  at::manual_seed(15);
  EXPECT_EQ(gradient_mismatch([](const auto& x) { return ops::attention(x[0], x[1], x[2]); },
                              {tokens(), tokens(), tokens()}),
            "");
  EXPECT_EQ(
      gradient_mismatch([](const auto& x) { return ops::cope_attention(x[0], x[1], x[2], x[3]); },
                        {tokens(), tokens(), tokens(), random({3, kHeadSize})}),
      "");
  EXPECT_EQ(gradient_mismatch([](const auto& x) { return ops::rope(x[0], 1); }, {tokens()}), "");
  EXPECT_EQ(gradient_mismatch([](const auto& x) { return ops::rope2d(x[0], kGrid); }, {tokens()}),
            "");
  EXPECT_EQ(
      gradient_mismatch([](const auto& x) { return ops::rope2d_mixed(x[0], x[1], x[2], kGrid); },
                        {tokens(), random({kHeads, 2}), random({kHeads, 2})}),
      "");
}

/// Twice x, once differentiable; not all that goes in and comes out of its backward is defined.
struct Doubles : torch::autograd::Function<Doubles> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>&) {
    context->save_for_backward({x, at::Tensor()});
    return 2 * x;
  }
  static ops::Tensors backward(torch::autograd::AutogradContext* context,
                               const ops::Tensors& grads) {
    return ops::once_only(context->get_saved_variables(), grads, [&]() -> ops::Tensors {
      return {2 * grads[0], at::Tensor()};
    });
  }
};

TEST(Gradcheck, OnceOnlyTakesAndGivesUndefinedTensors) {
  const at::Tensor x = at::rand({4}).requires_grad_();
  const at::Tensor out = Doubles::apply(x, std::optional<at::Tensor>());
  const at::Tensor first = torch::autograd::grad({out.square().sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(at::allclose(first, 8 * x));
  EXPECT_THROW(first.sum().backward(), c10::Error);
}

TEST(Gradcheck, ASecondBackwardIsRefusedWithASentence) {
  const auto refusal = [](const std::function<at::Tensor(const at::Tensor&)>& run) -> std::string {
    const auto x = tokens().requires_grad_();
    // Twice the same tensor: once through x, once through the gradient fed in.
    const auto out = run(x).square().sum();
    const auto first = torch::autograd::grad({out}, {x}, {}, true, /*create_graph=*/true)[0];
    try {
      first.square().sum().backward();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const auto table = random({5, kHeadSize}), ux = random({1, kHeads, 6, 3}),
             uy = random({1, kHeads, 6, 2});
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> operators = {
      [](const auto& x) { return ops::attention(x, x, x); },
      [&](const auto& x) { return ops::sape2_attention(x, x, x, table, table, kGrid); },
      [&](const auto& x) { return ops::sape2_vectors(x, x, table, table, kGrid).first; },
      [&](const auto& x) { return ops::sape2_bias(x, x, table, table, kGrid); },
      [&](const auto& x) { return ops::distance_attention(x, x, x, ux, uy, kGrid); },
      [&](const auto& x) { return ops::axial_attention(x, x, x, ux, uy, kGrid); },
      [&](const auto& x) { return ops::cope_attention(x, x, x, table); }};
  for (size_t which = 0; which < operators.size(); ++which)
    EXPECT_NE(refusal(operators[which]).find("a second backward was asked for"), std::string::npos)
        << "operator " << which;
}

}  // namespace
}  // namespace sape2::testing
