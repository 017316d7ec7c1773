#include "sape2/infer/inspection.h"

#include "sape2/base/error.h"

#include "infer/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

// What the runtime shows of an attention is what LibTorch's inspection shows.
namespace sape2::infer::testing {
namespace {

constexpr double kTolerance = 1e-5;

std::vector<float> numbers(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor plain = tensor.to(at::kFloat).contiguous();
  return {plain.data_ptr<float>(), plain.data_ptr<float>() + plain.numel()};
}

std::vector<float> numbers(const std::vector<std::uint8_t>& flags) {
  return {flags.begin(), flags.end()};
}

void expect_same(const char* what, const std::vector<float>& actual, const at::Tensor& expected) {
  EXPECT_LE(relative_difference(actual, numbers(expected)), kTolerance) << what;
}

void expect_same(const AxisRows& actual, const ops::AxisRows& expected) {
  expect_same("gates", actual.gates, expected.gates);
  expect_same("positions", actual.positions, expected.positions);
  expect_same("clamped", numbers(actual.clamped), expected.clamped);
  expect_same("bias of an axis", actual.bias, expected.bias);
}

void expect_same(const AttentionRows& actual, const ops::AttentionRows& expected) {
  expect_same("attention", actual.attention, expected.attention);
  expect_same("bias", actual.bias, expected.bias);
  expect_same("logit factor", actual.logit_factor, expected.logit_factor);
  expect_same("CoPE's gates", actual.gates, expected.gates);
  expect_same("CoPE's positions", actual.positions, expected.positions);
  expect_same("CoPE's clamped", numbers(actual.clamped), expected.clamped);
  EXPECT_EQ(actual.is_distance, expected.is_distance);
  expect_same(actual.x, expected.x);
  expect_same(actual.y, expected.y);
}

void expect_same_inspection(const SavedModel& saved, std::int64_t height, std::int64_t width) {
  const at::NoGradGuard no_grad;
  const std::vector<float> pixels = random_numbers(3 * height * width, 4);
  Session session(Model::open(saved.path));
  const Inspection inspection(session, {pixels.data(), 1, height, width});
  const ops::Grid grid{height / 4, width / 4, 3};
  const std::vector<std::int64_t> patches{0, grid.patches() - 1, grid.cols + 1};
  std::int64_t layer = 0;
  const at::Tensor features = saved.model->forward_features(
      at::tensor(pixels).view({1, 3, height, width}),
      [&](const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k) {
        SCOPED_TRACE("layer " + std::to_string(layer));
        expect_same(inspection.rows(layer++, patches), encoding.inspect(q, k, grid, patches));
      });
  EXPECT_EQ(layer, inspection.layers());
  EXPECT_LT(
      relative_difference(inspection.features(), numbers(features.narrow(1, 3, grid.patches()))),
      kTolerance);
  EXPECT_LT(relative_difference(inspection.logits(), saved.logits(pixels, 1, height, width)),
            kTolerance);
}

TEST(Inspection, ShowsWhatLibTorchShowsForEveryEncoding) {
  for (const std::string& encoding : encodings_with_options()) {
    SCOPED_TRACE(encoding);
    const SavedModel saved(small_config(encoding));
    expect_same_inspection(saved, 12, 20);
    expect_same_inspection(saved, 20, 16);
  }
}

TEST(Inspection, RefusesWhatIsNotThere) {
  const SavedModel saved(small_config("none"));
  Session session(Model::open(saved.path));
  const std::vector<float> pixels(2 * 3 * 12 * 20);
  EXPECT_THROW(Inspection(session, {pixels.data(), 2, 12, 20}), Error);
  const Inspection inspection(session, {pixels.data(), 1, 12, 20});
  const std::vector<std::int64_t> outside{15}, inside{14};
  EXPECT_THROW(inspection.rows(0, outside), Error);
  EXPECT_THROW(inspection.rows(3, inside), Error);
  EXPECT_EQ(inspection.rows(2, inside).attention.size(), 3U * 18);
}

}  // namespace
}  // namespace sape2::infer::testing
