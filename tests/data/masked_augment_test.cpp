#include "sape2/data/augment.h"
#include "sape2/data/loader.h"
#include "sape2/data/shapes.h"

#include "support/error_text.h"

#include <ATen/ATen.h>

namespace sape2::data {
namespace {

using namespace sape2::testing;

constexpr std::int64_t kSide = 48;

// Every pixel says where it is: the image 4·column and 4·row, the mask the column.
struct Ramp {
  at::Tensor images, masks;
};

Ramp ramp(std::int64_t batch) {
  const at::Tensor along = at::arange(kSide, at::kByte);
  const at::Tensor columns = along.view({1, kSide}).expand({kSide, kSide});
  const at::Tensor image = at::stack({columns * 4, columns.t() * 4, columns * 0});
  return {image.expand({batch, 3, kSide, kSide}).contiguous(),
          columns.expand({batch, kSide, kSide}).contiguous()};
}

AugmentOptions everything() {
  return {
      .crop_padding = 4, .flip = 0.5, .scale_low = 0.7, .scale_high = 1.5, .colour_jitter = 0.3};
}

// Bytes again, of images that were only scaled.
at::Tensor bytes_of(const at::Tensor& images) {
  return (images * 255).round().to(at::kInt);
}

TEST(MaskedAugment, WithoutOptionsNothingIsMoved) {
  const Ramp given = ramp(2);
  const MaskedBatch batch = augment_with_masks(given.images, given.masks, {}, {}, {});
  EXPECT_TRUE(bytes_of(batch.images).equal(given.images.to(at::kInt)));
  EXPECT_TRUE(batch.masks.equal(given.masks));
}

TEST(MaskedAugment, CropsAndFlipsMoveBothByWholePixels) {
  const Ramp given = ramp(64);
  const AugmentOptions options{.crop_padding = 6, .flip = 0.5};
  const MaskedBatch batch = augment_with_masks(given.images, given.masks, {}, options, {3, 1, 0});
  const at::Tensor images = bytes_of(batch.images), masks = batch.masks.to(at::kInt);
  const at::Tensor counted = masks.ne(255);
  EXPECT_TRUE(images.select(1, 0).masked_select(counted).equal(masks.masked_select(counted) * 4));
  // What lies beyond the image is grey, and not counted.
  const at::Tensor beyond = counted.logical_not();
  EXPECT_GT(beyond.sum().item<std::int64_t>(), 0);
  EXPECT_TRUE(images.select(1, 0).masked_select(beyond).eq(128).all().item<bool>());
  const at::Tensor first = masks.select(1, 20).select(1, 20),
                   next = masks.select(1, 20).select(1, 21);
  const auto mirrored = first.gt(next).sum().item<std::int64_t>();
  EXPECT_GT(mirrored, 16);
  EXPECT_LT(mirrored, 48);
}

TEST(MaskedAugment, ScaledViewsStayAligned) {
  const Ramp given = ramp(64);
  const AugmentOptions options{.flip = 0.5, .scale_low = 0.5, .scale_high = 2};
  const MaskedBatch batch = augment_with_masks(given.images, given.masks, {}, options, {5, 2, 0});
  const at::Tensor images = bytes_of(batch.images).select(1, 0), masks = batch.masks.to(at::kInt);
  const at::Tensor counted = masks.ne(255);
  // The image lies between its pixels, the mask on the nearest: never more than half a pixel apart.
  const at::Tensor apart = (images - masks * 4).abs().masked_select(counted);
  EXPECT_LE(apart.max().item<int>(), 2);
  // Both enlarged and reduced views occur: a step of one pixel is less or more than one column.
  const at::Tensor steps = (images.select(2, 25) - images.select(2, 23)).abs().select(1, 24);
  EXPECT_LT(steps.min().item<int>(), 6);
  EXPECT_GT(steps.max().item<int>(), 11);
  // An enlarged view shows the image alone; a reduced one shows all of it.
  for (std::int64_t i = 0; i < 64; ++i) {
    const at::Tensor view = masks[i], inside = view.ne(255);
    if (inside.all().item<bool>()) continue;
    const at::Tensor seen = view.masked_select(inside);
    EXPECT_LE(seen.min().item<int>(), 1);
    EXPECT_GE(seen.max().item<int>(), kSide - 2);
  }
}

TEST(MaskedAugment, ColoursChangeTheImageAlone) {
  const Ramp given = ramp(8);
  const AugmentOptions options{.colour_jitter = 0.4};
  const MaskedBatch batch = augment_with_masks(given.images, given.masks, {}, options, {1, 0, 0});
  EXPECT_TRUE(batch.masks.equal(given.masks));
  EXPECT_FALSE(bytes_of(batch.images).equal(given.images.to(at::kInt)));
}

// The draws of an image are its own: those around it do not matter.
TEST(MaskedAugment, DependsOnSeedEpochAndImageAlone) {
  const Dataset shapes = with_masks(make_shapes({.count = 20}));
  const auto run = [&](std::int64_t first, std::int64_t count, std::uint64_t epoch) {
    return augment_with_masks(shapes.images.narrow(0, first, count),
                              shapes.masks.narrow(0, first, count), shapes.normalisation,
                              everything(), {4, epoch, static_cast<std::uint64_t>(first)});
  };
  const MaskedBatch all = run(0, 20, 1), part = run(7, 5, 1);
  EXPECT_TRUE(all.images.narrow(0, 7, 5).equal(part.images));
  EXPECT_TRUE(all.masks.narrow(0, 7, 5).equal(part.masks));
  EXPECT_FALSE(run(0, 20, 2).masks.equal(all.masks));
}

TEST(MaskedAugment, LoadersGiveMasksAsTargets) {
  const Dataset shapes = with_masks(make_shapes({.count = 12}));
  Loader loader(shapes, {.batch_size = 4, .seed = 3, .augment = {.flip = 0.5}});
  const Batch batch = *loader.next();
  EXPECT_EQ(batch.targets.sizes(), (at::IntArrayRef{4, 32, 32}));
  EXPECT_EQ(batch.targets.scalar_type(), at::kByte);
  EXPECT_FALSE(batch.labels.defined());
  EXPECT_TRUE(batch.targets.equal(loader.batch(0, 0).targets));
}

// What each of several processes makes.
TEST(MaskedAugment, PartsTogetherAreTheBatch) {
  const Dataset shapes = with_masks(make_shapes({.count = 40}));
  LoaderOptions options{.batch_size = 13, .seed = 3, .augment = everything()};
  const Batch whole = Loader(shapes, options).batch(1, 2);
  for (const std::int64_t count : {2, 3, 13}) {
    std::vector<at::Tensor> images, masks;
    for (std::int64_t index = 0; index < count; ++index) {
      options.part = {index, count};
      const Batch part = Loader(shapes, options).batch(1, 2);
      images.push_back(part.images);
      masks.push_back(part.targets);
    }
    EXPECT_TRUE(at::cat(images).equal(whole.images)) << count << " parts";
    EXPECT_TRUE(at::cat(masks).equal(whole.targets)) << count << " parts";
  }
}

TEST(MaskedAugment, RefusesScalesThatMakeNoSense) {
  expect_contains(error_text([] { check_augment_options({.scale_low = 2, .scale_high = 1}); }),
                  "the largest scale is 1");
  expect_contains(error_text([] { check_augment_options({.colour_jitter = 1.5}); }), "colour");
}

}  // namespace
}  // namespace sape2::data
