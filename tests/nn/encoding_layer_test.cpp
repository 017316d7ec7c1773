#include "nn/support.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

// What each encoding computes, held against the formulas or the ops called by hand.
namespace sape2::nn::testing {
namespace {

constexpr double kExact = 1e-12;

struct Tokens {
  explicit Tokens(const LayerFixture& f)
      : q(random_tokens(f.shape, f.grid, 11)),
        k(random_tokens(f.shape, f.grid, 12)),
        v(random_tokens(f.shape, f.grid, 13)) {}
  at::Tensor q, k, v;
};

at::Tensor parameter(const LayerFixture& f, const std::string& name) {
  return f.root.named_parameters()[name];
}

// softmax((q·k)/√d + bias) v with a bias [.., N, N] already divided.
at::Tensor attention_with(const Tokens& t, const at::Tensor& bias) {
  const at::Tensor logits = at::matmul(t.q, t.k.transpose(2, 3)) / std::sqrt(t.q.size(3));
  return at::matmul(at::softmax(logits + bias, -1), t.v);
}

// A bias entry for each pair of patches, zero for prefix tokens.
at::Tensor pairwise(const LayerFixture& f,
                    const std::function<at::Tensor(int64_t dx, int64_t dy, int64_t i)>& entry,
                    at::IntArrayRef lead) {
  std::vector<int64_t> sizes(lead.begin(), lead.end());
  sizes.insert(sizes.end(), {f.grid.tokens(), f.grid.tokens()});
  at::Tensor bias = at::zeros(sizes, at::kDouble);
  for (int64_t i = 0; i < f.grid.patches(); ++i) {
    for (int64_t n = 0; n < f.grid.patches(); ++n) {
      const int64_t dx = n % f.grid.cols - i % f.grid.cols, dy = n / f.grid.cols - i / f.grid.cols;
      bias.select(-2, f.grid.prefix + i)
          .select(-1, f.grid.prefix + n)
          .copy_(entry(dx, dy, f.grid.prefix + i));
    }
  }
  return bias;
}

TEST(Rpe, AddsOneNumberPerHeadAndOffsetInsideTheRoot) {
  at::NoGradGuard no_grad;
  const LayerFixture f("rpe");
  const Tokens t(f);
  const at::Tensor rx = parameter(f, "pos.rx"), ry = parameter(f, "pos.ry");
  const auto entry = [&](int64_t dx, int64_t dy, int64_t) {
    return rx.select(1, f.grid.cols - 1 + dx) + ry.select(1, f.grid.rows - 1 + dy);
  };
  const at::Tensor bias = pairwise(f, entry, {f.shape.heads}) / std::sqrt(f.shape.head_size());
  EXPECT_LT(difference(f.attend(t.q, t.k, t.v), attention_with(t, bias)), kExact);
}

TEST(RpeContextual, AddsQueryTimesOffsetVectorInsideOrOutsideTheRoot) {
  at::NoGradGuard no_grad;
  for (const std::string name : {"rpe-shaw", "rpe-decomposed"}) {
    const LayerFixture f(name);
    const Tokens t(f);
    const at::Tensor tx = parameter(f, "pos.tx"), ty = parameter(f, "pos.ty");
    const auto entry = [&](int64_t dx, int64_t dy, int64_t i) {
      const at::Tensor vector = tx[f.grid.cols - 1 + dx] + ty[f.grid.rows - 1 + dy];
      return at::matmul(t.q.select(2, i), vector);
    };
    at::Tensor bias = pairwise(f, entry, {t.q.size(0), f.shape.heads});
    if (name == "rpe-shaw") bias = bias / std::sqrt(f.shape.head_size());
    EXPECT_LT(difference(f.attend(t.q, t.k, t.v), attention_with(t, bias)), kExact) << name;
  }
}

TEST(Sape2, WithOpenGatesIsDecomposedRelativePosition) {
  at::NoGradGuard no_grad;
  // The tables of both hold the same offsets on a square grid; on others SaPE²'s shorter axis
  // uses the middle rows.
  for (const int64_t rows : {3, 2}) {
    const EncodingShape shape{.width = 8, .heads = 2, .rows = rows, .cols = 3, .prefix = 2};
    const LayerFixture open("sape2-rel-q[gates=open]", shape), decomposed("rpe-decomposed", shape);
    parameter(decomposed, "pos.tx").copy_(parameter(open, "pos.ex"));
    parameter(decomposed, "pos.ty")
        .copy_(parameter(open, "pos.ey").narrow(0, shape.cols - rows, 2 * rows - 1));
    const Tokens t(open);
    EXPECT_LT(difference(open.attend(t.q, t.k, t.v), decomposed.attend(t.q, t.k, t.v)), kExact);
  }
}

struct Sape2Case {
  std::string encoding;
  std::string mode, span, form;
  double gate_scale, gate_offset, gain;
  bool inside;
};

TEST(Sape2, PassesEveryOptionToTheOp) {
  at::NoGradGuard no_grad;
  constexpr double kRoot = 2;  // √d of the fixture
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<Sape2Case> cases{
      {"sape2-q", "q", "suffix", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-k", "k", "suffix", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-qk", "qk", "suffix", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-k[span=between]", "k", "between", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-k[form=direct]", "k", "suffix", "direct", 1 / kRoot, 0, 1, true},
      {"sape2-rel-k[gates=fixed,form=paths]", "k", "between", "paths", 1 / kRoot, 2, 1, false},
      {"sape2-k[gate-scale=1,gate-offset=-0.5]", "k", "suffix", "distance", 1, -0.5, 1, true},
      {"sape2-k[gate-offset=0.5]", "k", "suffix", "distance", 1 / kRoot, 0.5, 1, true},
      {"sape2-k[gain=-1,bias=outside]", "k", "suffix", "distance", 1 / kRoot, 0, -1, false},
      {"sape2-k[M=3]", "k", "suffix", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-k[tables=per-head]", "k", "suffix", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-qk[tables=per-head]", "qk", "suffix", "distance", 1 / kRoot, 0, 1, true},
      {"sape2-rel-k[gates=fixed]", "k", "between", "direct", 1 / kRoot, 2, 1, false},
      {"sape2-rel-qk[gates=open]", "qk", "between", "direct", 0, kInfinity, 1, false},
  };
  for (const Sape2Case& c : cases) {
    const LayerFixture f(c.encoding);
    const Tokens t(f);
    const auto scalar = [](double value) { return at::full({}, value, at::kDouble); };
    const at::Tensor expected =
        ops::sape2_attention(t.q, t.k, t.v, parameter(f, "pos.ex"), parameter(f, "pos.ey"), f.grid,
                             {c.mode, c.span, scalar(c.gate_scale), scalar(c.gate_offset)}, c.form,
                             {.gain = scalar(c.gain), .bias_inside = c.inside});
    EXPECT_LT(difference(f.attend(t.q, t.k, t.v), expected), kExact) << c.encoding;
  }
}

TEST(Sape2, LearnsGatesAndGain) {
  at::NoGradGuard no_grad;
  for (const std::string mode : {"learnable", "per-head"}) {
    const LayerFixture f("sape2-rel-k[gain-mode=" + mode + "]");
    const Tokens t(f);
    const at::Tensor expected = ops::sape2_attention(
        t.q, t.k, t.v, parameter(f, "pos.ex"), parameter(f, "pos.ey"), f.grid,
        {"k", "between", parameter(f, "pos.gate_alpha") / 2, parameter(f, "pos.gate_beta")},
        "direct", {.gain = parameter(f, "pos.gain"), .bias_inside = false});
    EXPECT_LT(difference(f.attend(t.q, t.k, t.v), expected), kExact) << mode;
  }
}

TEST(Cope, InsideDividesTheBiasByTheRoot) {
  at::NoGradGuard no_grad;
  const LayerFixture inside("cope[bias=inside]"), outside("cope");
  parameter(outside, "pos.e").copy_(parameter(inside, "pos.e") / 2);
  const Tokens t(inside);
  EXPECT_LT(difference(inside.attend(t.q, t.k, t.v), outside.attend(t.q, t.k, t.v)), kExact);
}

TEST(Rotary, TurnsQueriesAndKeysButNotValues) {
  at::NoGradGuard no_grad;
  const LayerFixture raster("rope"), axial("rope2d"), mixed("rope2d-mixed");
  const Tokens t(axial);
  const ops::Grid& grid = axial.grid;
  EXPECT_LT(difference(raster.attend(t.q, t.k, t.v),
                       ops::attention(ops::rope(t.q, 1), ops::rope(t.k, 1), t.v)),
            kExact);
  EXPECT_LT(difference(axial.attend(t.q, t.k, t.v),
                       ops::attention(ops::rope2d(t.q, grid), ops::rope2d(t.k, grid), t.v)),
            kExact);
  const at::Tensor fx = parameter(mixed, "pos.fx"), fy = parameter(mixed, "pos.fy");
  EXPECT_LT(difference(mixed.attend(t.q, t.k, t.v),
                       ops::attention(ops::rope2d_mixed(t.q, fx, fy, grid),
                                      ops::rope2d_mixed(t.k, fx, fy, grid), t.v)),
            kExact);
}

TEST(Sinusoidal, FollowsTheFormulaAndSparesPrefixTokens) {
  const LayerFixture raster("sinusoidal"), axes("sinusoidal2d");
  const ops::Grid grid = raster.grid;
  const int64_t width = raster.shape.width;
  const auto wave = [](int64_t position, int64_t channel, int64_t channels) {
    const double angle = position / std::pow(10000, double(channel / 2 * 2) / channels);
    return channel % 2 ? std::cos(angle) : std::sin(angle);
  };
  ForwardPass pass{grid};
  const at::Tensor tokens = at::zeros({1, grid.tokens(), width}, at::kDouble);
  const at::Tensor one = raster.encoding->embed(tokens, pass)[0];
  const at::Tensor two = axes.encoding->embed(tokens, pass)[0];
  for (int64_t c = 0; c < width; ++c) {
    EXPECT_EQ(one[0][c].item<double>(), 0);
    EXPECT_EQ(two[0][c].item<double>(), 0);
    for (int64_t i = 0; i < grid.patches(); ++i) {
      const int64_t half = width / 2, axis = c < half ? i % grid.cols : i / grid.cols;
      EXPECT_NEAR(one[1 + i][c].item<double>(), wave(i, c, width), kExact);
      EXPECT_NEAR(two[1 + i][c].item<double>(), wave(axis, c % half, half), kExact);
    }
  }
}

TEST(Ape, AddsItsVectorsToAllTokens) {
  const LayerFixture f("ape");
  ForwardPass pass{f.grid};
  const at::Tensor tokens = random_tensor({2, f.grid.tokens(), f.shape.width}, 5);
  const at::Tensor expected = tokens + parameter(f, "pos_embed");
  EXPECT_EQ(difference(f.encoding->embed(tokens, pass), expected), 0);
}

TEST(Lape, CarriesNormalisedPositionsFromLayerToLayer) {
  LayerFixture f("lape");
  const at::Tensor tokens = random_tensor({2, f.grid.tokens(), f.shape.width}, 5);
  ForwardPass pass{f.grid};
  EXPECT_EQ(difference(f.encoding->embed(tokens, pass), tokens), 0);
  at::Tensor p = parameter(f, "lape_embed");
  for (int layer = 0; layer < 2; ++layer) {
    const at::Tensor centred = p - p.mean(-1, true);
    p = centred / (centred.square().mean(-1, true) + 1e-6).sqrt() *
            parameter(f, "pos.norm_weight") +
        parameter(f, "pos.norm_bias");
    EXPECT_LT(difference(f.layer->attention_input(tokens, pass), tokens + p), kExact);
  }
}

class EveryEncoding : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryEncoding, KeepsItsParametersFreeOfWeightDecay) {
  EXPECT_TRUE(LayerFixture(GetParam()).decayed.empty());
}

TEST_P(EveryEncoding, TakesLowPrecisionTokensWithFloat32Parameters) {
  at::NoGradGuard no_grad;
  LayerFixture f(GetParam());
  f.root.to(at::kFloat);
  const Tokens t(f);
  const auto low = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const at::Tensor out = f.attend(low(t.q), low(t.k), low(t.v));
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  const at::Tensor wide =
      f.attend(low(t.q).to(at::kFloat), low(t.k).to(at::kFloat), low(t.v).to(at::kFloat));
  EXPECT_LT(difference(out.to(at::kFloat), wide), 0.1);
}

TEST_P(EveryEncoding, AttendsToAProjectionAsToItsThirds) {
  const LayerFixture f(GetParam());
  const int64_t heads = f.shape.heads;
  const at::Tensor qkv = random_tensor({2, f.grid.tokens(), 3 * f.shape.width}, 5).requires_grad_();
  const auto third = [&](int64_t number) {
    return qkv.unflatten(2, {3, heads, -1}).select(2, number).transpose(1, 2);
  };
  const at::Tensor split =
      f.layer->attend(third(0), third(1), third(2), f.grid).transpose(1, 2).flatten(2);
  const at::Tensor packed = f.layer->attend_packed(qkv, heads, f.grid);
  EXPECT_EQ(difference(packed, split), 0);
  const auto gradient = [&](const at::Tensor& out) {
    return torch::autograd::grad({out.square().sum()}, {qkv})[0];
  };
  EXPECT_EQ(difference(gradient(packed), gradient(split)), 0);
}

TEST_P(EveryEncoding, ServesTheSmallestGrids) {
  at::NoGradGuard no_grad;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {1, 4}, {4, 1}}) {
    const LayerFixture f(GetParam(),
                         {.width = 8, .heads = 2, .rows = rows, .cols = cols, .prefix = 0});
    const Tokens t(f);
    EXPECT_TRUE(f.attend(t.q, t.k, t.v).isfinite().all().item<bool>()) << rows << "×" << cols;
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, EveryEncoding, ::testing::ValuesIn(all_encodings()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace sape2::nn::testing
