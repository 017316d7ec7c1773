#include "sape2/explain/inspection.h"

#include "sape2/explain/patch_choice.h"
#include "sape2/study/prediction.h"
#include "sape2/train/evaluate.h"

#include "explain/hand_made.h"
#include "support/error_text.h"

#include <cmath>

namespace sape2::explain {
namespace {

using namespace sape2::testing;
using test::hand_made_model;
using test::some_image;

double largest(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

std::vector<Patch> all_patches(const infer::Grid& grid) {
  std::vector<Patch> all;
  for (int64_t y = 0; y < grid.rows; ++y) {
    for (int64_t x = 0; x < grid.cols; ++x) all.push_back({y, x});
  }
  return all;
}

// The same model in float64 on the reference formulas: the bias of each layer.
std::vector<at::Tensor> reference_biases(const std::string& encoding, const std::string& mode,
                                         const std::string& span, const std::string& form,
                                         double offset) {
  const at::NoGradGuard no_grad;
  const ops::ReferenceGuard reference;
  const auto model = hand_made_model(encoding);
  model->to(at::kDouble);
  const auto parameters = model->named_parameters();
  const at::Tensor input =
      train::normalised_images(*model, study::as_batch(some_image(), 3)).to(at::kDouble);
  std::vector<at::Tensor> biases;
  model->forward_features(
      input, [&](const nn::LayerEncoding&, const at::Tensor& q, const at::Tensor& k) {
        const std::string place = "blocks." + std::to_string(biases.size()) + ".attn.pos.";
        biases.push_back(ops::sape2_bias(
            q, k, parameters[place + "ex"], parameters[place + "ey"], {3, 4, 0},
            {mode, span, {}, at::full({}, offset, at::kDouble)}, form)[0]);  // (h, N, N)
      });
  return biases;
}

TEST(Inspection, TheDistanceBiasIsThatOfTheReferenceInDouble) {
  const auto expected = reference_biases("sape2-k", "k", "suffix", "distance", 0);
  const Inspection seen(hand_made_model("sape2-k"), some_image());
  const auto all = all_patches(seen.grid());
  const double size = expected[1].abs().max().item<double>();
  EXPECT_GT(size, 1);
  EXPECT_LT(largest(seen.rows(What::bias, {1, 0}, all), expected[1][0]), 1e-5 * size);
  const at::Tensor mean = (expected[0].mean(0) + expected[1].mean(0)) / 2;
  EXPECT_LT(largest(seen.rows(What::bias, {}, all), mean), 1e-5 * size);
  EXPECT_LT(largest(seen.matrix(What::bias, {}, 100), mean), 1e-5 * size);
  EXPECT_EQ(seen.scale_kind(What::bias), ScaleKind::distance);
}

TEST(Inspection, TheSignedBiasIsThatOfTheReferenceInDouble) {
  const char* encoding = "sape2-rel-q[gates=fixed]";
  const auto expected = reference_biases(encoding, "q", "between", "direct", 2);
  const Inspection seen(hand_made_model(encoding), some_image());
  const double size = expected[0].abs().max().item<double>();
  const auto all = all_patches(seen.grid());
  EXPECT_LT(largest(seen.rows(What::bias, {0, 1}, all), expected[0][1]), 1e-5 * size);
  EXPECT_LT(largest(seen.rows(What::bias_x, {0, 1}, all) + seen.rows(What::bias_y, {0, 1}, all),
                    expected[0][1]),
            1e-5 * size);
  EXPECT_EQ(seen.scale_kind(What::bias), ScaleKind::balanced);
}

TEST(Inspection, PositionsAddUpTheGates) {
  const Inspection seen(hand_made_model("sape2-k", 2), some_image());
  const Patch patch{1, 2};
  const Selection one{0, 1};
  const at::Tensor gates = seen.rows(What::gates, one, {patch})[0].view({3, 4});
  const SoftPositions positions = seen.positions(one, patch);
  for (int64_t x = 0; x < 4; ++x) {
    EXPECT_NEAR(positions.x.at(static_cast<std::size_t>(x)),
                gates[1].narrow(0, x, 4 - x).sum().item<double>(), 1e-5);
  }
  for (int64_t y = 0; y < 3; ++y) {
    EXPECT_NEAR(positions.y.at(static_cast<std::size_t>(y)),
                gates.select(1, 2).narrow(0, y, 3 - y).sum().item<double>(), 1e-5);
  }
  EXPECT_TRUE(std::isnan(gates[0][0].item<double>()));
  const at::Tensor distance = seen.rows(What::positions, one, {patch})[0].view({3, 4});
  EXPECT_EQ(distance[1][2].item<double>(), 0);
  EXPECT_NEAR(distance[0][3].item<double>(),
              std::abs(positions.x[3] - positions.x[2]) + std::abs(positions.y[0] - positions.y[1]),
              1e-5);
}

TEST(Inspection, EveryEncodingAnswers) {
  for (const char* encoding : {"none", "ape", "lape", "rope", "rope2d-mixed", "cope", "rpe",
                               "rpe-shaw", "sape2-qk+ape", "sape2-rel-k"}) {
    SCOPED_TRACE(encoding);
    const Inspection seen(hand_made_model(encoding), some_image());
    const at::Tensor attention = seen.rows(What::attention, {}, {{0, 0}, {2, 3}});
    EXPECT_LT(largest(attention.sum(1), at::ones({2})), 1e-5);
    const std::string name = encoding;
    const bool biased = name.starts_with("sape2") || name.starts_with("rpe") || name == "cope";
    EXPECT_EQ(seen.offers(What::bias), biased);
    if (biased) {
      EXPECT_EQ(seen.rows(What::bias, {0, 0}, {{0, 0}}).size(1), 12);
    } else {
      expect_contains(error_text([&] {
                        seen.rows(What::bias, {}, {{0, 0}});
                      }),
                      "adds nothing to the logits; look at its attention");
    }
  }
}

TEST(Inspection, AMatrixOfManyPatchesIsAveraged) {
  const Inspection seen(hand_made_model("sape2-k"), some_image());
  const at::Tensor whole = seen.matrix(What::bias, {}, 12), half = seen.matrix(What::bias, {}, 6);
  EXPECT_EQ(half.sizes(), at::IntArrayRef({6, 6}));
  EXPECT_LT(largest(half, whole.view({6, 2, 6, 2}).mean(at::IntArrayRef({1, 3}))), 1e-5);
}

TEST(Inspection, OtherShapesAndSizesOfImages) {
  const auto model = hand_made_model("sape2-k+ape");
  const Inspection wide(model, some_image(30, 90));
  EXPECT_EQ(wide.grid().rows, 3);
  EXPECT_EQ(wide.grid().cols, 9);
  const Inspection large(model, some_image(30, 30), {.shorter_side = 64});
  EXPECT_EQ(large.grid().patches(), 256);
  EXPECT_EQ(large.rows(What::bias, {}, {{15, 15}}).size(1), 256);
  const auto absurd = [&] { Inspection(model, some_image(2, 4000), {.shorter_side = 512}); };
  expect_contains(error_text(absurd), "patches");
}

TEST(Inspection, NamesWhatTheModelLacks) {
  const Inspection seen(hand_made_model("sape2-k"), some_image());
  expect_contains(error_text([&] { seen.rows(What::bias, {2, 0}, {{0, 0}}); }), "no layer 3");
  expect_contains(error_text([&] { seen.rows(What::bias, {0, 5}, {{0, 0}}); }), "no head 6");
  expect_contains(error_text([&] { seen.rows(What::bias, {}, {{3, 0}}); }), "no patch 3,0");
}

TEST(PatchChoice, TellsSubjectFromBackground) {
  data::Image image = some_image(12, 16);
  for (int64_t y = 0; y < 12; ++y) {
    for (int64_t x = 0; x < 16; ++x) {
      const bool inside = y >= 4 && y < 8 && x >= 4 && x < 12;
      for (int64_t c = 0; c < 3; ++c) {
        image.pixels[static_cast<std::size_t>((y * 16 + x) * 3 + c)] = inside ? 250 : 10;
      }
    }
  }
  const ChosenPatches chosen = choose_patches(Inspection(hand_made_model("none"), image));
  EXPECT_EQ(chosen.subject.y, 1);
  EXPECT_TRUE(chosen.subject.x == 1 || chosen.subject.x == 2);
  EXPECT_TRUE(chosen.background.y != 1 || chosen.background.x == 0 || chosen.background.x == 3);
}

}  // namespace
}  // namespace sape2::explain
