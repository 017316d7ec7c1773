// A look through the runtime without LibTorch is a look through LibTorch.
#include "sape2/explain/runtime_look.h"

#include "sape2/explain/caption.h"
#include "sape2/explain/inspection.h"
#include "sape2/explain/patch_choice.h"
#include "sape2/io/model_file.h"
#include "sape2/study/prediction.h"

#include "explain/hand_made.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sape2::explain {
namespace {

infer::Model runtime_model(const nn::ViT& model) {
  const sape2::testing::ScratchFolder folder;
  const auto path = folder / "model.safetensors";
  io::save_model(path, model);
  return infer::Model::open(path);
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  float size = 1;
  for (const float value : expected) size = std::max(size, std::isnan(value) ? 0 : std::abs(value));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i]));
    } else {
      EXPECT_NEAR(found[i], expected[i], 1e-4 * size);
    }
  }
}

class RuntimeLookTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RuntimeLookTest, SeesWhatLibTorchSees) {
  const auto model = test::hand_made_model(GetParam(), 2);
  infer::Session session(runtime_model(*model), {.threads = 1});
  for (const std::int64_t shorter : {0, 20}) {
    const Inspection expected(model, test::some_image(30, 40), {.shorter_side = shorter});
    const RuntimeLook found(session, test::some_image(30, 40), {.shorter_side = shorter});
    ASSERT_EQ(found.grid().patches(), expected.grid().patches());
    EXPECT_EQ(found.image().pixels, expected.image().pixels);
    expect_near(found.features(), expected.features());
    EXPECT_EQ(choose_patches(found).subject, choose_patches(expected).subject);
    EXPECT_NEAR(found.predictions()[0].probability, expected.predictions()[0].probability, 1e-5);
    EXPECT_NEAR(found.clamped_share(), expected.clamped_share(), 0.02);
    const std::vector<Patch> patches{{0, 0}, {2, 1}, {1, 3}};
    for (const std::string& name : what_names()) {
      SCOPED_TRACE(name);
      const What what = parse_what(name);
      ASSERT_EQ(found.offers(what), expected.offers(what));
      if (!expected.offers(what)) continue;
      EXPECT_EQ(found.scale_kind(what), expected.scale_kind(what));
      for (const Selection& selection : {Selection{}, Selection{1, 0}, Selection{{}, 1}}) {
        expect_near(found.values(what, selection, patches),
                    expected.values(what, selection, patches));
      }
    }
    if (expected.offers(What::bias)) {
      EXPECT_NEAR(found.logit_factor({}).high, expected.logit_factor({}).high, 1e-5);
    }
    if (!expected.offers(What::positions)) continue;
    const SoftPositions some = found.positions({}, {1, 1}), wanted = expected.positions({}, {1, 1});
    expect_near(some.x, wanted.x);
    expect_near(some.y, wanted.y);
    expect_near(some.raster, wanted.raster);
    const GateSummary gates = found.gate_summary({}), seen = expected.gate_summary({});
    EXPECT_NEAR(gates.mean, seen.mean, 1e-4);
    EXPECT_NEAR(gates.deviation, seen.deviation, 1e-3);
    EXPECT_NEAR(gates.spacing, seen.spacing, 1e-3);
    EXPECT_NEAR(gates.bend, seen.bend, 1e-3);
  }
}

TEST(RuntimeLook, SeesTheMaskThatLibTorchSees) {
  const auto model = test::hand_made_model("sape2-rel-k", 2, "segmentation");
  infer::Session session(runtime_model(*model), {.threads = 1});
  const Inspection expected(model, test::some_image(30, 40));
  const RuntimeLook found(session, test::some_image(30, 40));
  EXPECT_TRUE(expected.predictions().empty() && found.predictions().empty());
  ASSERT_TRUE(expected.pixel_logits() && found.pixel_logits());
  const nn::Size2d size{30, 40};
  expect_near(found.pixel_logits()->at(size, 3, 29), expected.pixel_logits()->at(size, 3, 29));
  EXPECT_EQ(found.pixel_logits()->mask(size).mask.pixels,
            expected.pixel_logits()->mask(size).mask.pixels);
  // At the size trained at it is what `sape2 predict` writes.
  const data::Image image = test::some_image();
  const Inspection whole(model, image);
  const study::MaskPrediction written = study::predict_mask(*model, image);
  const infer::MaskPrediction seen = whole.pixel_logits()->mask({image.height, image.width});
  EXPECT_EQ(seen.mask.pixels, written.mask.pixels);
  EXPECT_EQ(seen.shares, written.shares);
}

TEST(RuntimeLook, AMaskOfNumbersThatAreNotFiniteIsRefused) {
  const auto model = test::hand_made_model("ape", 0, "segmentation");
  {
    const at::NoGradGuard no_grad;
    model->named_parameters()["head.bias"].fill_(std::numeric_limits<float>::infinity());
  }
  EXPECT_THROW(Inspection(model, test::some_image()), infer::NotFinite);
}

INSTANTIATE_TEST_SUITE_P(Encodings, RuntimeLookTest,
                         ::testing::Values("ape", "rope2d", "cope", "rpe", "sape2-qk+ape",
                                           "sape2-k[gain=-2,resize=extend]", "sape2-rel-k"));

}  // namespace
}  // namespace sape2::explain
