#include "sape2/data/shapes.h"

#include "data/get/md5.h"
#include "support/error_text.h"

#include <ATen/ATen.h>

namespace sape2::data {
namespace {

using namespace sape2::testing;

std::string checksum(const at::Tensor& bytes) {
  return md5_of({bytes.data_ptr<std::uint8_t>(), static_cast<std::size_t>(bytes.numel())});
}

TEST(Shapes, DefaultsAreWhatIsDocumented) {
  const Dataset train = load_dataset("shapes", Split::train);
  EXPECT_EQ(train.images.sizes(), (at::IntArrayRef{4000, 3, 32, 32}));
  EXPECT_EQ(images_per_class(train), std::vector<std::int64_t>(10, 400));
  const Dataset test = load_dataset("shapes", Split::test);
  EXPECT_EQ(test.size(), 1000);
  EXPECT_FALSE(test.images[0].equal(train.images[0]));
  const at::Tensor floats = train.images.to(at::kFloat) / 255;
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(floats.select(1, c).mean().item<float>(), train.normalisation.mean[c], 0.02);
    EXPECT_NEAR(floats.select(1, c).std().item<float>(), train.normalisation.deviation[c], 0.02);
  }
}

// Whole-number arithmetic throughout: these are the same on every machine and by every compiler.
TEST(Shapes, AreBitwiseReproducible) {
  const Shapes shapes = make_shapes({.count = 64, .seed = 7});
  EXPECT_EQ(checksum(shapes.dataset.images), "a0298496ccf7544b391e5b77b9a44ff4");
  EXPECT_EQ(checksum(shapes.masks), "ab0cb4a120c44868604815fb45367abe");
  EXPECT_FALSE(shapes.dataset.images.equal(make_shapes({.count = 64, .seed = 8}).dataset.images));
}

TEST(Shapes, AnImageDoesNotDependOnHowManyThereAre) {
  const Shapes few = make_shapes({.count = 5}), many = make_shapes({.count = 50});
  EXPECT_TRUE(few.dataset.images.equal(many.dataset.images.slice(0, 0, 5)));
}

TEST(Shapes, MasksCoverTheObjectOfTheAskedSize) {
  for (const std::int64_t size : {10, 20, 28}) {
    const Shapes shapes =
        make_shapes({.count = 10, .min_object = size, .max_object = size, .centre = {{16, 16}}});
    // A disc's area is known.
    const double area = shapes.masks[0].sum().item<double>();
    EXPECT_NEAR(area, 3.14159 * size * size / 4, size) << size;
  }
}

TEST(Shapes, MaskAndTextureBelongTogether) {
  ShapesOptions options{.count = 20, .noise = 0};
  const Shapes shapes = make_shapes(options);
  for (std::int64_t i = 0; i < 20; ++i) {
    const at::Tensor on = shapes.masks[i].to(at::kBool);
    EXPECT_GT(on.sum().item<std::int64_t>(), 20);
    EXPECT_LT(on.sum().item<std::int64_t>(), 700);
    // Object and background have no colours in common: means differ in some channel.
    const at::Tensor image = shapes.dataset.images[i].to(at::kFloat);
    const at::Tensor object = image.masked_select(on).view({3, -1}).mean(1);
    const at::Tensor background = image.masked_select(on.logical_not()).view({3, -1}).mean(1);
    EXPECT_GT((object - background).abs().max().item<float>(), 8) << i;
  }
}

TEST(Shapes, AShiftMovesTheWholeSceneWithoutASeam) {
  ShapesOptions options{.count = 20, .noise = 0};
  const Shapes still = make_shapes(options);
  options.shift_x = 5;
  options.shift_y = -3;
  const Shapes moved = make_shapes(options);
  const auto inner = [](const at::Tensor& t, std::int64_t y, std::int64_t x) {
    return t.narrow(-2, y, 29).narrow(-1, x, 27);
  };
  EXPECT_TRUE(inner(moved.dataset.images, 0, 5).equal(inner(still.dataset.images, 3, 0)));
  EXPECT_TRUE(inner(moved.masks, 0, 5).equal(inner(still.masks, 3, 0)));
}

TEST(Shapes, AnotherSizeOfObjectLeavesTheBackgroundAsItWas) {
  ShapesOptions options{.count = 10, .min_object = 8, .max_object = 8, .centre = {{16, 16}}};
  const Shapes small = make_shapes(options);
  options.min_object = options.max_object = 24;
  const Shapes large = make_shapes(options);
  const at::Tensor background =
      (small.masks + large.masks).eq(0).unsqueeze(1) & at::ones({1, 3, 1, 1}, at::kBool);
  const at::Tensor same = small.dataset.images.eq(large.dataset.images);
  // Pixels at the border of the object are mixed; almost all others agree.
  EXPECT_GT(same.masked_select(background).to(at::kFloat).mean().item<float>(), 0.9);
}

TEST(Shapes, OtherResolutionsShowTheSameScenes) {
  const ShapesOptions options{.count = 10, .noise = 0};
  ShapesOptions twice = options;
  twice.image_size = 64;
  const Dataset small = make_shapes(options).dataset, large = make_shapes(twice).dataset;
  const at::Tensor reduced = at::avg_pool2d(large.images.to(at::kFloat), 2);
  EXPECT_LT((reduced - small.images.to(at::kFloat)).abs().mean().item<float>(), 4);
}

TEST(Shapes, RefusesImpossibleValues) {
  const auto sentence = [](const ShapesOptions& options) {
    return error_text([&] { make_shapes(options); });
  };
  expect_contains(sentence({.image_size = 0}), "image size is 0");
  expect_contains(sentence({.min_object = 20, .max_object = 10}), "largest object is 10");
  expect_contains(sentence({.shift_x = 1000}), "shift to the right is 1000");
  expect_contains(sentence({.noise = -1}), "noise is -1");
}

}  // namespace
}  // namespace sape2::data
