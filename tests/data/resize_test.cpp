#include "sape2/data/image.h"

#include "support/error_text.h"

#include <cmath>

namespace sape2::data {
namespace {

using namespace sape2::testing;

Image gradient(std::int64_t height, std::int64_t width) {
  Image image{height, width, 1, {}};
  for (std::int64_t i = 0; i < height * width; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(i % width * 255 / (width - 1)));
  }
  return image;
}

// The definition: a triangle of one output pixel's width each side (at least one input pixel's),
// one axis after the other.
double triangle_at(const Image& image, std::int64_t row, double scale, std::int64_t column) {
  const double centre = (static_cast<double>(column) + 0.5) * scale, support = std::max(scale, 1.0);
  double sum = 0, weights = 0;
  for (std::int64_t x = 0; x < image.width; ++x) {
    const double weight =
        std::max(0.0, 1 - std::abs(static_cast<double>(x) + 0.5 - centre) / support);
    sum += weight * image.pixels[row * image.width + x];
    weights += weight;
  }
  return sum / weights;
}

TEST(Resize, FollowsTheTriangleFilterDownAndUp) {
  Image image{1, 37, 1, {}};
  for (int x = 0; x < 37; ++x) image.pixels.push_back(static_cast<std::uint8_t>(x * x * 83 % 256));
  for (const std::int64_t width : {5, 12, 36, 80}) {
    const Image result = resize(image, 1, width);
    for (std::int64_t x = 0; x < width; ++x) {
      EXPECT_NEAR(result.pixels[x], triangle_at(image, 0, 37.0 / static_cast<double>(width), x),
                  0.51)
          << width << " " << x;
    }
  }
}

TEST(Resize, IsAntialiased) {
  Image stripes{1, 64, 1, {}};
  for (int x = 0; x < 64; ++x) stripes.pixels.push_back(x % 2 ? 255 : 0);
  for (const std::uint8_t value : resize(stripes, 1, 8).pixels) EXPECT_NEAR(value, 127, 8);
}

TEST(Resize, KeepsFlatImagesExactlyWhateverTheReduction) {
  for (const std::int64_t side : {1, 3, 50, 5000}) {
    const Image flat{2, side, 3,
                     std::vector<std::uint8_t>(static_cast<std::size_t>(2 * side * 3), 201)};
    for (const std::uint8_t value : resize(flat, 7, 9).pixels) ASSERT_EQ(value, 201);
  }
}

TEST(ResizeToCover, CutsOutTheMiddle) {
  const Image result = resize_to_cover(gradient(10, 100), 10, 10);
  EXPECT_NEAR(result.pixels.front(), 45 * 255 / 99, 1);
  EXPECT_NEAR(result.pixels.back(), 54 * 255 / 99, 1);
  const Image tall = resize_to_cover(gradient(1000, 11), 4, 22);
  EXPECT_EQ(tall.height, 4);
  EXPECT_EQ(tall.width, 22);
}

TEST(Resize, RefusesImpossibleSizes) {
  expect_contains(error_text([] { resize(gradient(4, 4), 0, 4); }), "4 × 0");
  expect_contains(error_text([] { resize(gradient(4, 4), 4, 1 << 20); }), "1048576");
}

}  // namespace
}  // namespace sape2::data
