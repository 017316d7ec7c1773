#include "sape2/data/augment.h"

#include "sape2/data/shapes.h"

#include "support/error_text.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

namespace sape2::data {
namespace {

using namespace sape2::testing;

const Dataset& pictures() {
  static const Dataset dataset = make_shapes({.count = 200}).dataset;
  return dataset;
}

at::Tensor some(std::int64_t count) {
  return pictures().images.slice(0, 0, count);
}

TEST(CropAndFlip, EveryResultIsAWindowOfThePaddedImage) {
  constexpr std::int64_t kPadding = 4;
  const at::Tensor images = some(60);
  const at::Tensor results = random_crop_and_flip(images, kPadding, 0.5, {1, 2, 3});
  const at::Tensor padded =
      at::constant_pad_nd(images, {kPadding, kPadding, kPadding, kPadding}, 0);
  std::set<std::pair<int, int>> offsets;
  int flips = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    bool found = false;
    for (int top = 0; top <= 8 && !found; ++top) {
      for (int left = 0; left <= 8 && !found; ++left) {
        const at::Tensor window = padded[i].narrow(1, top, 32).narrow(2, left, 32);
        const bool flipped = results[i].equal(window.flip(2));
        if (!flipped && !results[i].equal(window)) continue;
        found = true;
        flips += flipped;
        offsets.insert({top, left});
      }
    }
    EXPECT_TRUE(found) << i;
  }
  EXPECT_GT(offsets.size(), 30u);
  EXPECT_GT(flips, 15);
  EXPECT_LT(flips, 45);
}

TEST(CropAndFlip, AlwaysOrNeverFlips) {
  EXPECT_TRUE(random_crop_and_flip(some(9), 0, 1, {}).equal(some(9).flip(3)));
  EXPECT_TRUE(random_crop_and_flip(some(9), 0, 0, {}).equal(some(9)));
}

TEST(Draws, OfOneImageDoNotDependOnItsBatch) {
  const at::Tensor images = some(20);
  const AugmentOptions options{
      .crop_padding = 4, .flip = 0.5, .policy = Policy::auto_augment, .erase = 0.5};
  const auto run = [&](const at::Tensor& batch, std::uint64_t first) {
    return augment(batch, at::zeros({batch.size(0)}, at::kLong), 10, pictures().normalisation,
                   options, {5, 6, first})
        .images;
  };
  EXPECT_TRUE(run(images, 0).slice(0, 7, 12).equal(run(images.slice(0, 7, 12), 7)));
}

TEST(AutoAugment, DoesSomethingElseToEachImageAndKeepsSome) {
  const at::Tensor one = some(1).expand({150, 3, 32, 32}).contiguous();
  const at::Tensor results = auto_augment(one, {1, 0, 0});
  EXPECT_TRUE(results.equal(auto_augment(one, {1, 0, 0})));
  EXPECT_FALSE(results.equal(auto_augment(one, {1, 1, 0})));
  int unchanged = 0;
  std::set<std::string> different;
  for (std::int64_t i = 0; i < 150; ++i) {
    unchanged += results[i].equal(one[i]);
    different.insert(std::string(static_cast<const char*>(results[i].data_ptr()), 3072));
  }
  // The 25 pairs leave an image alone with a probability of 19 % on average.
  EXPECT_GT(unchanged, 10);
  EXPECT_LT(unchanged, 60);
  EXPECT_GT(different.size(), 40u);
}

TEST(RandAugment, StrengthZeroOnlyEqualisesOrStretches) {
  const at::Tensor one = some(1).expand({100, 3, 32, 32}).contiguous();
  std::map<std::string, int> seen;
  const at::Tensor results = rand_augment(one, 1, 0, {});
  for (std::int64_t i = 0; i < 100; ++i) {
    ++seen[std::string(static_cast<const char*>(results[i].data_ptr()), 3072)];
  }
  // The image itself, equalised, stretched, and solarized at 255.
  EXPECT_LE(seen.size(), 4u);
  EXPECT_GT(seen[std::string(static_cast<const char*>(one[0].data_ptr()), 3072)], 60);
  EXPECT_FALSE(rand_augment(one, 2, 9, {}).equal(one));
  EXPECT_TRUE(rand_augment(one, 0, 9, {}).equal(one));
}

TEST(Normalise, FollowsItsFormula) {
  const Normalisation normalisation{{0.1, 0.5, 0.9}, {0.2, 0.3, 0.4}};
  const at::Tensor result = normalise(some(4), normalisation);
  for (int c = 0; c < 3; ++c) {
    const at::Tensor expected =
        (some(4).select(1, c).to(at::kDouble) / 255 - normalisation.mean[c]) /
        normalisation.deviation[c];
    EXPECT_LT((result.select(1, c) - expected).abs().max().item<double>(), 1e-5);
  }
  expect_contains(error_text([&] { normalise(some(1), {{0.5}, {0.2}}); }), "3 channels");
  expect_contains(error_text([&] {
                    normalise(some(1), {{0, 0, 0}, {1, 0, 1}});
                  }),
                  "channel 1 is 0");
}

// All devices and the Python package compute this, so it is held to the bit: one rounding of the
// difference, one of the product.
TEST(Normalise, IsOneArithmeticForAllBytes) {
  const Normalisation normalisation{{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
  const at::Tensor bytes = at::arange(256, at::kByte).view({1, 1, 16, 16}).expand({1, 3, 16, 16});
  const at::Tensor result = normalise(bytes, normalisation);
  const at::Tensor scaled = normalise(bytes, {});
  const auto scales = byte_scales(normalisation, 3);
  for (int c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(255 * normalisation.mean[c]);
    const auto factor = static_cast<float>(1 / (255 * normalisation.deviation[c]));
    for (int byte = 0; byte < 256; ++byte) {
      const auto difference = static_cast<float>(static_cast<double>(byte) - mean);
      const auto expected = static_cast<float>(static_cast<double>(difference) * factor);
      EXPECT_EQ(result[0][c].flatten()[byte].item<float>(), expected) << c << " " << byte;
      EXPECT_EQ(scales[c](static_cast<std::uint8_t>(byte)), expected) << c << " " << byte;
      EXPECT_EQ(scaled[0][c].flatten()[byte].item<float>(),
                static_cast<float>(byte) * static_cast<float>(1.0 / 255));
    }
  }
}

TEST(RandomErase, ErasesOneBoxOfTheRightSize) {
  const at::Tensor ones = at::ones({300, 3, 32, 32});
  const at::Tensor result = random_erase(ones, 0.25, {4, 0, 0});
  int erased = 0;
  for (std::int64_t i = 0; i < 300; ++i) {
    const at::Tensor zero = result[i][0].eq(0);
    const auto area = zero.sum().item<std::int64_t>();
    if (area == 0) continue;
    ++erased;
    EXPECT_TRUE(result[i][1].equal(result[i][0]) && result[i][2].equal(result[i][0]));
    const auto tall = zero.any(1).sum().item<std::int64_t>();
    const auto wide = zero.any(0).sum().item<std::int64_t>();
    EXPECT_EQ(area, tall * wide) << "not a box";
    EXPECT_GE(area, 15);
    EXPECT_LE(area, 370);
    EXPECT_LT(static_cast<double>(tall) / static_cast<double>(wide), 4.2);
    EXPECT_GT(static_cast<double>(tall) / static_cast<double>(wide), 0.23);
  }
  EXPECT_GT(erased, 45);
  EXPECT_LT(erased, 105);
}

TEST(Targets, SmoothingSpreadsEvenly) {
  const at::Tensor targets = smooth_targets(at::tensor({2, 0}, at::kLong), 4, 0.2);
  EXPECT_TRUE(targets.allclose(
      at::tensor({0.05, 0.05, 0.85, 0.05, 0.85, 0.05, 0.05, 0.05}, at::kFloat).view({2, 4})));
}

struct Mixing : ::testing::TestWithParam<MixOptions> {};

// Images that are constant, each with a value of its own: pixels tell who gave them.
TEST_P(Mixing, PixelsAndTargetsTellTheSameShares) {
  constexpr std::int64_t kBatch = 64;
  const at::Tensor values = at::arange(kBatch, at::kFloat);
  const at::Tensor images = values.view({kBatch, 1, 1, 1}).expand({kBatch, 3, 16, 24}).contiguous();
  const at::Tensor targets = at::eye(kBatch);
  const MixedBatch mixed = mix(images, targets, GetParam(), {3, 1, 128});
  EXPECT_LT((mixed.targets.sum(1) - 1).abs().max().item<float>(), 1e-6);
  EXPECT_GE(mixed.targets.min().item<float>(), 0);
  // The mean pixel is the mean of the two values weighted by their shares.
  const at::Tensor expected = mixed.targets.mv(values);
  EXPECT_LT((mixed.images.mean({1, 2, 3}) - expected).abs().max().item<float>(), 1e-3);
  int cut = 0, blended = 0, kept = 0;
  for (std::int64_t i = 0; i < kBatch; ++i) {
    const at::Tensor own = mixed.images[i].eq(static_cast<double>(i));
    const at::Tensor whole = mixed.images[i].eq(mixed.images[i].round());
    if (own.all().item<bool>()) {
      ++kept;
    } else if (whole.all().item<bool>()) {
      ++cut;
    } else {
      ++blended;
    }
  }
  const MixOptions& options = GetParam();
  EXPECT_EQ(cut > 10, options.cutmix > 0);
  EXPECT_EQ(blended > 10, options.mixup > 0);
  if (options.probability == 1) {
    EXPECT_LT(kept, 25);
  } else {
    EXPECT_GT(kept, 15);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Mixing,
                         ::testing::Values(MixOptions{.mixup = 0.8}, MixOptions{.cutmix = 1},
                                           MixOptions{.mixup = 0.8, .cutmix = 1},
                                           MixOptions{
                                               .mixup = 1, .cutmix = 1, .probability = 0.5}));

TEST(Mixing, CutMixTakesABox) {
  const at::Tensor images =
      at::arange(32, at::kFloat).view({32, 1, 1, 1}).expand({32, 1, 20, 20}).contiguous();
  const at::Tensor mixed = mix(images, at::eye(32), {.cutmix = 1}, {1, 0, 0}).images;
  for (std::int64_t i = 0; i < 32; ++i) {
    const at::Tensor foreign = mixed[i][0].ne(static_cast<double>(i));
    EXPECT_EQ(foreign.sum().item<std::int64_t>(), foreign.any(0).sum().item<std::int64_t>() *
                                                      foreign.any(1).sum().item<std::int64_t>());
  }
}

TEST(Mixing, OffLeavesAllAsItWas) {
  const at::Tensor images = at::rand({4, 3, 8, 8}), targets = at::eye(4);
  const MixedBatch mixed = mix(images, targets, {}, {});
  EXPECT_TRUE(mixed.images.equal(images));
  EXPECT_TRUE(mixed.targets.equal(targets));
}

TEST(AugmentOptions, ImpossibleValuesAreASentence) {
  const auto sentence = [](const AugmentOptions& options) {
    return error_text([&] { check_augment_options(options); });
  };
  expect_contains(sentence({.crop_padding = -1}), "padding is -1");
  expect_contains(sentence({.flip = 1.5}), "flip is 1.5");
  expect_contains(sentence({.rand_magnitude = 31}), "magnitude is 31");
  expect_contains(sentence({.erase = std::nan("")}), "erasing is nan");
  expect_contains(sentence({.mix = {.mixup = -0.1}}), "MixUp's alpha is -0.1");
  expect_contains(sentence({.label_smoothing = 2}), "smoothing is 2");
}

}  // namespace
}  // namespace sape2::data
