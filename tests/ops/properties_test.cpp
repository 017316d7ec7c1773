// What must hold for any input: identities between operators, exact zeros, no NaN at the edges.
#include "sape2/ops/ops.h"

#include "support/golden.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

namespace sape2::testing {
namespace {

at::Tensor random(at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::TensorOptions().dtype(type));
}

ops::VectorOptions open_gates(const std::string& mode, const std::string& span) {
  return {.mode = mode,
          .span = span,
          .gate_scale = at::zeros({}, at::kDouble),
          .gate_offset = at::full({}, std::numeric_limits<double>::infinity(), at::kDouble)};
}

struct Inputs {
  Inputs(const ops::Grid& grid, int64_t head_size, int64_t table_rows,
         at::ScalarType type = at::kDouble)
      : q(random({2, 3, grid.tokens(), head_size}, type)),
        k(random(q.sizes(), type)),
        v(random(q.sizes(), type)),
        ex(random({table_rows, head_size}, type)),
        ey(random({table_rows, head_size}, type)) {}
  at::Tensor q, k, v, ex, ey;
};

// Table rows t[Δ] of decomposed relative position as vectors q_i·t[x_n − x_i].
at::Tensor relative_vectors(const at::Tensor& patches, const at::Tensor& table,
                            const ops::Grid& grid, bool along_x) {
  const int64_t length = along_x ? grid.cols : grid.rows, origin = table.size(0) / 2;
  const auto products = at::matmul(patches, table.transpose(0, 1));  // (B, h, H·W, M)
  auto result =
      at::empty({patches.size(0), patches.size(1), grid.patches(), length}, patches.options());
  for (int64_t i = 0; i < grid.patches(); ++i)
    for (int64_t n = 0; n < length; ++n) {
      const int64_t own = along_x ? i % grid.cols : i / grid.cols;
      result.select(2, i).select(2, n).copy_(products.select(2, i).select(2, origin + n - own));
    }
  return result;
}

TEST(Properties, WhatCameForwardByTheFormulaGoesBackByIt) {
  at::manual_seed(10);
  const ops::Grid grid{7, 6, 1};
  const Inputs in(grid, 8, 8, at::kFloat);
  const auto dout = random(in.q.sizes(), at::kFloat);
  enum class Guarded { nothing, forward, all };
  const auto gradient_of_q = [&](Guarded guarded) {
    const auto q = in.q.detach().requires_grad_();
    auto guard = std::make_unique<ops::ReferenceGuard>();
    if (guarded == Guarded::nothing) guard.reset();
    const auto out = ops::sape2_attention(q, in.k, in.v, in.ex, in.ey, grid);
    if (guarded == Guarded::forward) guard.reset();
    out.backward(dout);
    return q.grad();
  };
  const auto by_formula = gradient_of_q(Guarded::all);
  EXPECT_TRUE(gradient_of_q(Guarded::forward).equal(by_formula));
  EXPECT_FALSE(gradient_of_q(Guarded::nothing).equal(by_formula));  // rounded otherwise
}

TEST(Properties, OpenGatesBetweenDirectIsDecomposedRelativePosition) {
  at::manual_seed(1);
  const ops::Grid grid{3, 5, 1};
  const Inputs in(grid, 8, 2 * 4 + 1);
  const auto ours =
      ops::sape2_attention(in.q, in.k, in.v, in.ex, in.ey, grid, open_gates("q", "between"),
                           "direct", {.bias_inside = false});
  const auto patches = in.q.narrow(2, grid.prefix, grid.patches());
  const auto theirs =
      ops::axial_attention(in.q, in.k, in.v, relative_vectors(patches, in.ex, grid, true),
                           relative_vectors(patches, in.ey, grid, false), grid);
  EXPECT_LE(relative_error(ours, theirs), 1e-13);
}

TEST(Properties, InterpolatingProductsEqualsInterpolatingEmbeddings) {
  at::manual_seed(2);
  const ops::Grid grid{1, 6, 0};
  const Inputs in(grid, 8, 7);
  const auto ux = ops::sape2_vectors(in.q, in.k, in.ex, in.ey, grid).first;
  const auto gates = at::sigmoid(at::matmul(in.q, in.k.transpose(2, 3)) / std::sqrt(8.0));
  const auto p = gates.flip({-1}).cumsum(-1).flip({-1});  // (B, h, i, m)
  const auto weight = (p - p.floor()).unsqueeze(-1);
  const auto row = [&](const at::Tensor& at) {
    return in.ex.index_select(0, at.to(at::kLong).flatten()).view({2, 3, 6, 6, 8});
  };
  const auto embeddings = weight * row(p.ceil()) + (1 - weight) * row(p.floor());
  const auto expected = (embeddings * in.k.unsqueeze(3)).sum(-1);
  EXPECT_LE(relative_error(ux, expected), 1e-13);
}

TEST(Properties, StagesComposeToTheWhole) {
  at::manual_seed(3);
  const ops::Grid grid{4, 3, 2};
  for (const std::string mode : {"q", "k", "qk"})
    for (const std::string form : {"distance", "direct"}) {
      Inputs in(grid, 8, 5);
      if (mode == "qk") in.ex = random({2, 5, 8}), in.ey = random({2, 5, 8});
      const ops::VectorOptions options{.mode = mode, .span = "between"};
      const ops::BiasOptions bias{.scale = 0.3, .gain = random({3}), .bias_inside = true};
      const auto whole =
          ops::sape2_attention(in.q, in.k, in.v, in.ex, in.ey, grid, options, form, bias);
      const auto [ux, uy] = ops::sape2_vectors(in.q, in.k, in.ex, in.ey, grid, options);
      const auto stages = form == "distance"
                              ? ops::distance_attention(in.q, in.k, in.v, ux, uy, grid, bias)
                              : ops::axial_attention(in.q, in.k, in.v, ux, uy, grid, bias);
      EXPECT_LE(relative_error(stages, whole), 1e-13) << mode << " " << form;
    }
}

TEST(Properties, DistanceBiasIsSymmetricWithAZeroDiagonal) {
  at::manual_seed(4);
  const ops::Grid grid{5, 4, 1};
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Inputs in(grid, 16, 9, type);
    for (const std::string span : {"suffix", "between"}) {
      const auto b = ops::sape2_bias(in.q, in.k, in.ex, in.ey, grid, {.span = span});
      EXPECT_TRUE(b.equal(b.transpose(2, 3)));
      EXPECT_EQ(b.diagonal(0, 2, 3).abs().max().item<double>(), 0);
      EXPECT_EQ(b.select(2, 0).abs().max().item<double>(), 0) << "prefix row";
      EXPECT_EQ(b.select(3, 0).abs().max().item<double>(), 0) << "prefix column";
    }
  }
}

// Equal patches must get bitwise equal vectors wherever they stand, or the distance between them is
// one rounding error and its derivative a unit vector of noise.
TEST(Properties, EqualPatchesGetEqualVectorsAndNoNoiseInGradients) {
  at::manual_seed(5);
  const ops::Grid grid{6, 7, 0};
  for (const auto type : {at::kFloat, at::kDouble})
    for (const int64_t d : {1, 5, 16, 24, 64, 80, 96}) {
      const auto one = at::TensorOptions().dtype(type);
      auto q = at::randn({2, 2, 1, d}, one).expand({2, 2, 42, d}).clone().requires_grad_();
      auto k = at::randn({2, 2, 1, d}, one).expand({2, 2, 42, d}).clone();
      const auto v = at::randn({2, 2, 42, d}, one);
      const auto ex = at::randn({8, d}, one), ey = at::randn({8, d}, one);
      const auto b = ops::sape2_bias(q, k, ex, ey, grid);
      EXPECT_EQ(b.abs().max().item<double>(), 0) << "head size " << d;
      ops::sape2_attention(q, k, v, ex, ey, grid).sum().backward();
      // All logits are alike, so the softmax is flat and, by symmetry, dq is 0 but for rounding.
      EXPECT_LE(q.grad().abs().max().item<double>(), type == at::kFloat ? 1e-4 : 1e-12);
    }
}

// The same where no kernel serves: in float64, and for heads that are too large for one.
TEST(Properties, EqualPatchesGetEqualVectorsOnThePlainFormulas) {
  const ops::Grid grid{3, 5, 0};
  for (const auto& [type, d, seeds] : {std::tuple{at::kDouble, 8, 200}, {at::kFloat, 257, 100}})
    for (int seed = 0; seed < seeds; ++seed) {
      at::manual_seed(seed);
      const auto one = at::TensorOptions().dtype(type);
      const auto q = at::randn({1, 1, 1, d}, one).expand({1, 1, 15, d});
      const auto k = at::randn({1, 1, 1, d}, one).expand({1, 1, 15, d});
      const auto ex = at::randn({6, d}, one), ey = at::randn({6, d}, one);
      const auto b = ops::sape2_bias(q, k, ex, ey, grid, {.mode = "q"});
      EXPECT_EQ(b.abs().max().item<double>(), 0) << "head size " << d << ", seed " << seed;
    }
}

TEST(Properties, NoNaNAtTheEdges) {
  at::manual_seed(6);
  const double inf = std::numeric_limits<double>::infinity();
  for (const ops::Grid grid : {ops::Grid{1, 1, 0}, {1, 5, 0}, {5, 1, 0}, {1, 1, 3}, {2, 3, 1}})
    for (const std::string span : {"suffix", "between"})
      for (const std::string form : {"distance", "direct"})
        for (const double offset : {0.0, 1e4, -1e4, inf, -inf})
          for (const auto type : {at::kFloat, at::kDouble}) {
            Inputs in(grid, 4, 5, type);
            const auto options = at::TensorOptions().dtype(type);
            for (auto* tensor : {&in.q, &in.k, &in.v, &in.ex, &in.ey}) tensor->requires_grad_();
            auto gate_scale =
                at::full({3}, std::isinf(offset) ? 0.0 : 30.0, options).requires_grad_();
            auto gate_offset = at::full({3}, offset, options).requires_grad_();
            const auto out = ops::sape2_attention(
                in.q, in.k, in.v, in.ex, in.ey, grid,
                {.mode = "k", .span = span, .gate_scale = gate_scale, .gate_offset = gate_offset},
                form);
            out.sum().backward();
            EXPECT_TRUE(out.isfinite().all().item<bool>());
            for (const auto& tensor : {in.q, in.k, in.v, in.ex, in.ey, gate_scale, gate_offset})
              EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>());
          }
}

TEST(Properties, NaNInputsComeOutAsNaN) {
  const ops::Grid grid{2, 3, 0};
  Inputs in(grid, 4, 5);
  in.q.fill_(std::nan(""));
  const auto out = ops::sape2_attention(in.q, in.k, in.v, in.ex, in.ey, grid);
  EXPECT_TRUE(out.isnan().all().item<bool>());
}

TEST(Properties, AnEmptyBatchIsFine) {
  const ops::Grid grid{2, 3, 1};
  auto q = at::zeros({0, 3, 7, 4}).requires_grad_();
  const auto table = at::zeros({4, 4});
  const auto out = ops::sape2_attention(q, q, q, table, table, grid);
  EXPECT_EQ(out.sizes(), q.sizes());
  out.sum().backward();
  EXPECT_EQ(q.grad().sizes(), q.sizes());
}

TEST(Properties, StridedInputsGiveTheSameAsContiguousOnes) {
  at::manual_seed(7);
  const ops::Grid grid{3, 4, 1};
  const auto qkv = at::randn({2, 13, 3, 5, 16}).permute({2, 0, 3, 1, 4});  // as a ViT makes them
  const auto ex = at::randn({9, 16}), ey = at::randn({9, 16});
  const auto strided = ops::sape2_attention(qkv[0], qkv[1], qkv[2], ex, ey, grid);
  const auto contiguous = ops::sape2_attention(qkv[0].contiguous(), qkv[1].contiguous(),
                                               qkv[2].contiguous(), ex, ey, grid);
  EXPECT_TRUE(strided.equal(contiguous));
}

TEST(Properties, Bfloat16IsAsGoodAsItsInputs) {
  at::manual_seed(8);
  const ops::Grid grid{4, 4, 0};
  const Inputs wide(grid, 16, 5);
  const auto low = [](const at::Tensor& t) { return t.to(at::kBFloat16); };
  const auto out =
      ops::sape2_attention(low(wide.q), low(wide.k), low(wide.v), low(wide.ex), low(wide.ey), grid);
  ASSERT_EQ(out.scalar_type(), at::kBFloat16);
  const auto exact = [&](const at::Tensor& t) { return low(t).to(at::kDouble); };
  const auto expected = ops::sape2_attention(exact(wide.q), exact(wide.k), exact(wide.v),
                                             exact(wide.ex), exact(wide.ey), grid);
  EXPECT_LE(relative_error(out, expected), 1.0 / 256) << "one rounding of the output";
}

TEST(Properties, RopeTurnsByTheRasterIndexAndLeavesPrefixTokens) {
  at::manual_seed(9);
  const auto x = random({1, 2, 7, 8});
  const auto turned = ops::rope(x, 2);
  EXPECT_TRUE(turned.narrow(2, 0, 2).equal(x.narrow(2, 0, 2)));
  for (int64_t patch = 0; patch < 5; ++patch)
    for (int64_t t = 0; t < 4; ++t) {
      const double angle = double(patch) * std::pow(10000.0, -double(t) / 4);
      const auto a = x[0][1][2 + patch][2 * t].item<double>(),
                 b = x[0][1][2 + patch][2 * t + 1].item<double>();
      EXPECT_NEAR(turned[0][1][2 + patch][2 * t].item<double>(),
                  a * std::cos(angle) - b * std::sin(angle), 1e-12);
      EXPECT_NEAR(turned[0][1][2 + patch][2 * t + 1].item<double>(),
                  a * std::sin(angle) + b * std::cos(angle), 1e-12);
    }
}

}  // namespace
}  // namespace sape2::testing
