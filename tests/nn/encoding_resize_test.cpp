#include "nn/support.h"

#include <gtest/gtest.h>

// Encodings at another grid than the one they were trained at.
namespace sape2::nn::testing {
namespace {

constexpr double kExact = 1e-12;

// Trained at 3×3 patches, running at 5×4.
const EncodingShape kTrained{.width = 8, .heads = 2, .rows = 3, .cols = 3, .prefix = 1};
const ops::Grid kLarger{5, 4, 1};
const ops::Grid kSmaller{2, 3, 1};

at::Tensor parameter(const LayerFixture& f, const std::string& name) {
  return f.root.named_parameters()[name];
}

at::Tensor attend(const LayerFixture& f, const ops::Grid& grid) {
  at::NoGradGuard no_grad;
  return f.layer->attend(random_tokens(f.shape, grid, 1), random_tokens(f.shape, grid, 2),
                         random_tokens(f.shape, grid, 3), grid);
}

// SaPE² with given tables at another grid, called by hand.
at::Tensor attend_with(const at::Tensor& ex, const at::Tensor& ey, const std::string& span,
                       const ops::Grid& grid) {
  at::NoGradGuard no_grad;
  const auto one = at::full({}, 0.5, at::kDouble);
  return ops::sape2_attention(random_tokens(kTrained, grid, 1), random_tokens(kTrained, grid, 2),
                              random_tokens(kTrained, grid, 3), ex, ey, grid,
                              {"k", span, one, at::zeros({}, at::kDouble)}, "direct");
}

// Rows first … last of a table that is a straight line through position 0: row p is `slope·p`.
at::Tensor line(double slope, int64_t first, int64_t last) {
  const at::Tensor direction = random_tensor({kTrained.head_size()}, 9);
  return slope * at::arange(first, last + 1, at::kDouble).unsqueeze(1) * direction;
}

TEST(ApeResize, KeepsPrefixVectorsAndResamplesPatches) {
  at::NoGradGuard no_grad;
  const LayerFixture f("ape", kTrained);
  at::Tensor table = parameter(f, "pos_embed");
  ForwardPass pass{kLarger};
  const at::Tensor zeros = at::zeros({1, kLarger.tokens(), 8}, at::kDouble);
  const at::Tensor patches = table.narrow(1, 1, 9).transpose(1, 2).reshape({1, 8, 3, 3});
  const at::Tensor expected = at::upsample_bicubic2d(patches, {5, 4}, false);
  const at::Tensor resized = f.encoding->embed(zeros, pass);
  EXPECT_EQ(difference(resized.select(1, 0), table.select(1, 0)), 0);
  EXPECT_LT(difference(resized.narrow(1, 1, 20), expected.flatten(2).transpose(1, 2)), kExact);
}

TEST(LapeResize, IsThatOfApe) {
  at::NoGradGuard no_grad;
  const LayerFixture lape("lape", kTrained), ape("ape", kTrained);
  parameter(ape, "pos_embed").copy_(parameter(lape, "lape_embed"));
  ForwardPass pass{kLarger}, ape_pass{kLarger};
  const at::Tensor zeros = at::zeros({1, kLarger.tokens(), 8}, at::kDouble);
  lape.encoding->embed(zeros, pass);
  EXPECT_EQ(difference(pass.carried, ape.encoding->embed(zeros, ape_pass)), 0);
}

TEST(RpeResize, StretchesItsTablesLinearly) {
  at::NoGradGuard no_grad;
  const LayerFixture trained("rpe", kTrained);
  const LayerFixture exact("rpe", {.width = 8, .heads = 2, .rows = 5, .cols = 4, .prefix = 1});
  // A line over −2 … 2 must become the line over −4 … 4 (rows) and −3 … 3 (columns) with the same
  // ends.
  const auto numbers = [](double slope, int64_t reach) {
    return (slope * at::arange(-reach, reach + 1, at::kDouble)).expand({2, 2 * reach + 1});
  };
  parameter(trained, "pos.rx").copy_(numbers(0.6, 2));
  parameter(trained, "pos.ry").copy_(numbers(-0.8, 2));
  parameter(exact, "pos.rx").copy_(numbers(0.4, 3));
  parameter(exact, "pos.ry").copy_(numbers(-0.4, 4));
  EXPECT_LT(difference(attend(trained, kLarger), attend(exact, kLarger)), kExact);
}

TEST(RpeResize, ToOneColumnKeepsTheMiddle) {
  const ops::Grid column{3, 1, 1};
  for (const std::string name : {"rpe", "rpe-shaw", "rpe-decomposed"}) {
    at::NoGradGuard no_grad;
    const LayerFixture f(name, kTrained);
    const LayerFixture exact(name, {.width = 8, .heads = 2, .rows = 3, .cols = 1, .prefix = 1});
    const std::string x = name == "rpe" ? "pos.rx" : "pos.tx",
                      y = name == "rpe" ? "pos.ry" : "pos.ty";
    const int64_t axis = name == "rpe" ? 1 : 0;
    parameter(exact, x).copy_(parameter(f, x).narrow(axis, 2, 1));
    parameter(exact, y).copy_(parameter(f, y));
    EXPECT_LT(difference(attend(f, column), attend(exact, column)), kExact) << name;
  }
}

TEST(Sape2Resize, ClampUsesTheTablesAsTheyAre) {
  for (const std::string span : {"suffix", "between"}) {
    const LayerFixture f("sape2-k[form=direct,span=" + span + "]", kTrained);
    const at::Tensor ex = parameter(f, "pos.ex"), ey = parameter(f, "pos.ey");
    for (const ops::Grid& grid : {kLarger, kSmaller}) {
      EXPECT_LT(difference(attend(f, grid), attend_with(ex, ey, span, grid)), kExact) << span;
    }
  }
}

TEST(Sape2Resize, ExtendContinuesTheTables) {
  at::NoGradGuard no_grad;
  const LayerFixture suffix("sape2-k[form=direct,resize=extend]", kTrained);
  parameter(suffix, "pos.ex").copy_(line(0.3, 0, 3));
  parameter(suffix, "pos.ey").copy_(line(-0.2, 0, 3));
  EXPECT_LT(difference(attend(suffix, kLarger),
                       attend_with(line(0.3, 0, 5), line(-0.2, 0, 5), "suffix", kLarger)),
            kExact);
  const LayerFixture between("sape2-k[form=direct,span=between,resize=extend]", kTrained);
  parameter(between, "pos.ex").copy_(line(0.3, -2, 2));
  parameter(between, "pos.ey").copy_(line(-0.2, -2, 2));
  EXPECT_LT(difference(attend(between, kLarger),
                       attend_with(line(0.3, -4, 4), line(-0.2, -4, 4), "between", kLarger)),
            kExact);
  const at::Tensor ex = parameter(between, "pos.ex"), ey = parameter(between, "pos.ey");
  EXPECT_LT(difference(attend(between, kSmaller), attend_with(ex, ey, "between", kSmaller)),
            kExact);
}

TEST(Sape2Resize, ResampleStretchesTheTablesAlongEachAxis) {
  at::NoGradGuard no_grad;
  const LayerFixture suffix("sape2-k[form=direct,resize=resample]", kTrained);
  // Position 3 of 3 patches becomes position 4 of 4 (columns) and 5 of 5 (rows).
  parameter(suffix, "pos.ex").copy_(line(0.4, 0, 3));
  parameter(suffix, "pos.ey").copy_(line(-0.5, 0, 3));
  const at::Tensor ex = line(0.3, 0, 5);
  ex[5] = ex[4];
  EXPECT_LT(
      difference(attend(suffix, kLarger), attend_with(ex, line(-0.3, 0, 5), "suffix", kLarger)),
      kExact);
  const LayerFixture between("sape2-k[form=direct,span=between,resize=resample]", kTrained);
  // Offset 2 becomes 3 (columns) and 4 (rows).
  parameter(between, "pos.ex").copy_(line(0.3, -2, 2));
  parameter(between, "pos.ey").copy_(line(-0.6, -2, 2));
  const at::Tensor wide = line(0.2, -4, 4);
  wide[0] = wide[1];
  wide[8] = wide[7];
  EXPECT_LT(difference(attend(between, kLarger),
                       attend_with(wide, line(-0.3, -4, 4), "between", kLarger)),
            kExact);
}

TEST(Sape2Resize, TheTrainedGridIsNeverTouched) {
  const ops::Grid trained{3, 3, 1};
  const LayerFixture clamp("sape2-k", kTrained), extend("sape2-k[resize=extend]", kTrained),
      resample("sape2-k[resize=resample]", kTrained);
  EXPECT_EQ(difference(attend(clamp, trained), attend(extend, trained)), 0);
  EXPECT_EQ(difference(attend(clamp, trained), attend(resample, trained)), 0);
  EXPECT_GT(difference(attend(clamp, kLarger), attend(extend, kLarger)), 1e-6);
  EXPECT_GT(difference(attend(clamp, kLarger), attend(resample, kLarger)), 1e-6);
}

class EveryEncodingResized : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryEncodingResized, RunsAndLearnsAtOtherGrids) {
  ViT model(tiny_config(GetParam()));
  for (const auto& size : {std::pair{8, 10}, {2, 4}, {4, 2}, {2, 2}}) {
    const at::Tensor images = random_tensor({2, 2, size.first, size.second}, 3).to(at::kFloat);
    const at::Tensor logits = model.forward(images);
    ASSERT_EQ(logits.sizes(), at::IntArrayRef({2, 3}));
    EXPECT_TRUE(logits.isfinite().all().item<bool>());
    model.zero_grad();
    logits.square().sum().backward();
    for (const auto& parameter : model.named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

TEST_P(EveryEncodingResized, RunsInBfloat16) {
  at::NoGradGuard no_grad;
  ViT model(tiny_config(GetParam()));
  const at::Tensor images = random_tensor({2, 2, 8, 10}, 3).to(at::kFloat);
  const at::Tensor expected = model.forward(images);
  model.to(at::kBFloat16);
  const at::Tensor logits = model.forward(images.to(at::kBFloat16));
  EXPECT_LT(difference(logits.to(at::kFloat), expected), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Encodings, EveryEncodingResized, ::testing::ValuesIn(all_encodings(true)),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace sape2::nn::testing
