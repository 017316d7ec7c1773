#include "sape2/explain/caption.h"

#include "sape2/explain/inspection.h"

#include "explain/hand_made.h"
#include "support/error_text.h"

#include <cmath>

namespace sape2::explain {
namespace {

using namespace sape2::testing;
using test::hand_made_model;
using test::some_image;

Inspection look(const std::string& encoding, int64_t shorter_side = 0) {
  return {hand_made_model(encoding), some_image(), {.shorter_side = shorter_side}};
}

std::string caption_of(const std::string& encoding, What what, const Selection& selection = {},
                       const Extent& extent = {0, 4}) {
  std::string all;
  for (const std::string& one : captions(look(encoding), what, selection, extent)) all += one + " ";
  return all;
}

void expect_lacks(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << text;
}

TEST(Captions, ADistanceThatIsAddedDrawsAttentionToWhatIsFar) {
  const std::string added = caption_of("sape2-k", What::bias);
  expect_contains(added, "Far patches gain attention");
  // Inside √d, heads of 8 channels: 4/√8.
  expect_contains(added, effect_text(4 / std::sqrt(8)));
  const std::string taken = caption_of("sape2-k[gain=-1,bias=outside]", What::bias);
  expect_contains(taken, "Far patches lose attention");
  expect_contains(taken, effect_text(-4));
  expect_contains(caption_of("sape2-k[gain=0]", What::bias), "changes nothing");
  expect_contains(caption_of("sape2-k", What::bias_x), "comes from the rows");
}

TEST(Captions, ASignedBiasNamesTheColoursOfGainAndLoss) {
  const std::string plain = caption_of("sape2-rel-k", What::bias, {}, {-2, 1});
  expect_contains(plain, "Orange patches gain attention, blue ones lose it");
  expect_contains(plain, effect_text(-2) + " to " + effect_text(1));
  expect_contains(caption_of("sape2-rel-k[gain=-1]", What::bias, {}, {-2, 1}),
                  "Blue patches gain attention, orange ones lose it");
  expect_contains(caption_of("rpe-decomposed", What::bias, {}, {-3, -1}), "All lose attention");
}

TEST(Captions, AMeanSaysSo) {
  expect_contains(caption_of("sape2-k", What::bias), "The map is a mean");
  expect_lacks(caption_of("sape2-k", What::bias, {0, 1}), "mean");
}

TEST(Captions, AGainThatDiffersBetweenHeadsHasNoOneNumber) {
  const auto model = hand_made_model("sape2-k[gain-mode=per-head,bias=outside]");
  for (auto& item : model->named_parameters()) {
    if (!item.key().ends_with("gain")) continue;
    const at::NoGradGuard no_grad;
    item.value()[0].fill_(-0.5);
    item.value()[1].fill_(2);
  }
  const Inspection seen(model, some_image());
  const auto mean = captions(seen, What::bias, {}, {0, 4});
  expect_contains(mean[0], "between −0.5 and 2 logits");
  expect_contains(mean[0], "raises attention in some and lowers it in others");
  expect_contains(captions(seen, What::bias, {0, 0}, {0, 4})[0], "Far patches lose attention");
  expect_contains(captions(seen, What::bias, {0, 1}, {0, 4})[0], "Far patches gain attention");
}

TEST(Captions, AttentionIsAShareAndNamesEncodingsWithoutABias) {
  expect_contains(caption_of("rope2d", What::attention, {}, {0, 0.25}), "the largest here is 25 %");
  expect_contains(caption_of("rope2d", What::attention), "rope2d (q and k turned");
  expect_contains(caption_of("ape", What::attention), "adds no bias to the logits");
  expect_lacks(caption_of("sape2-k", What::attention), "adds no bias");
}

TEST(Captions, PlainOffsetsAreCalledSo) {
  const std::string open = caption_of("sape2-rel-k[gates=open]", What::positions);
  expect_contains(open, "nearly plain offsets, 1.00 per patch to within 0.01 patches");
  expect_contains(open, "gates of 1.00 on average (standard deviation 0.00)");
  const std::string content =
      caption_of("sape2-rel-k[gates=fixed,gate-scale=60,gate-offset=0]", What::positions);
  expect_contains(content, "These positions depend on the image");
  expect_lacks(content, "plain");
  expect_contains(caption_of("sape2-rel-k[gates=open]", What::gates), "nearly all alike");
  expect_contains(caption_of("cope", What::positions), "per patch");
}

TEST(Captions, NameTheHeadThatDependsOnTheImageMost) {
  const Inspection seen = look("sape2-rel-k[gates=fixed,gate-scale=60,gate-offset=0]");
  const GateSummary all = seen.gate_summary({});
  const GateSummary one = seen.gate_summary(all.most_bent);
  EXPECT_NEAR(one.bend, all.most_bend, 1e-9);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_LE(seen.gate_summary({layer, head}).bend, all.most_bend + 1e-9);
    }
  }
}

TEST(Captions, ClampingTablesAreWarnedOf) {
  EXPECT_FALSE(clamp_warning(look("sape2-k[gates=open]")));
  const auto warning = clamp_warning(look("sape2-k[gates=open]", 64));
  ASSERT_TRUE(warning);
  expect_contains(*warning, "this grid has 16×21 patches, the model was trained on 3×4");
  // Tables end at 4. Of positions 21 … 1 along a row 17 lie beyond, of 16 … 1 along a column 12.
  expect_contains(*warning, "78 % of the positions");
  EXPECT_FALSE(clamp_warning(look("sape2-k[gates=open,resize=extend]", 64)));
  EXPECT_FALSE(clamp_warning(look("sape2-k[gates=open,resize=resample]", 64)));
  EXPECT_FALSE(clamp_warning(look("rpe", 64)));
  EXPECT_TRUE(clamp_warning(look("sape2-rel-k[gates=open]", 64)));
  EXPECT_TRUE(clamp_warning(look("sape2-k[gates=open,M=3]"))) << "on the grid trained at, too";
}

TEST(Captions, FactorsHaveFewDigits) {
  EXPECT_EQ(effect_text(0), "+0.00 logits (×1.00)");
  EXPECT_EQ(factor_text(0.06), "×1.06");
  EXPECT_EQ(effect_text(std::log(3.2)), "+1.16 logits (×3.2)");
  EXPECT_EQ(effect_text(-2), "−2.00 logits (×0.14)");
  EXPECT_EQ(factor_text(std::log(13.4)), "×13");
}

}  // namespace
}  // namespace sape2::explain
