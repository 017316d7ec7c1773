#include "sape2/data/augment.h"
#include "sape2/data/image.h"
#include "sape2/data/random.h"

#include "support/error_text.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

// Every operation against its definition, written as a plain loop over the pixels of one image.
namespace sape2::data {
namespace {

using namespace sape2::testing;

constexpr int kHeight = 13, kWidth = 17;

at::Tensor random_images(std::int64_t count, std::int64_t channels) {
  at::Tensor images = at::empty({count, channels, kHeight, kWidth}, at::kByte);
  auto* pixels = images.data_ptr<std::uint8_t>();
  Draws draws(9, 0, 0, Purpose::shapes);
  // Not all of the range, so that stretching and equalising have something to do.
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(40 + draws.below(90) + draws.below(90));
  }
  return images;
}

using Pixels = at::TensorAccessor<std::uint8_t, 3>;
using Definition = std::function<int(const Pixels& image, int c, int y, int x)>;

void expect_definition(ImageOp op, double value, std::int64_t channels,
                       const std::function<Definition(const Pixels&)>& define) {
  // Among other operations, so that grouping is tested as well.
  const at::Tensor images = random_images(4, channels);
  const at::Tensor results = apply_image_ops(
      images, {{ImageOp::identity, 0}, {op, value}, {ImageOp::posterize, 3}, {op, value}});
  EXPECT_TRUE(results[0].equal(images[0]));
  for (const int i : {1, 3}) {
    const at::Tensor image = images[i], result = results[i];
    const Pixels in = image.accessor<std::uint8_t, 3>(), out = result.accessor<std::uint8_t, 3>();
    const Definition defined = define(in);
    for (int c = 0; c < channels; ++c) {
      for (int y = 0; y < kHeight; ++y) {
        for (int x = 0; x < kWidth; ++x) {
          ASSERT_EQ(out[c][y][x], defined(in, c, y, x))
              << "op " << static_cast<int>(op) << " at " << c << " " << y << " " << x;
        }
      }
    }
  }
}

void expect_moved(ImageOp op, double value,
                  const std::function<std::pair<double, double>(double, double)>& source) {
  expect_definition(op, value, 3, [&](const Pixels&) -> Definition {
    return [&](const Pixels& in, int c, int y, int x) -> int {
      const auto [from_x, from_y] = source(x + 0.5, y + 0.5);
      const double column = std::floor(from_x), row = std::floor(from_y);
      if (column < 0 || row < 0 || column >= kWidth || row >= kHeight) return 128;
      return in[c][static_cast<int>(row)][static_cast<int>(column)];
    };
  });
}

TEST(ImageOps, ShearsAndShifts) {
  expect_moved(ImageOp::shear_x, 0.27,
               [](double x, double y) { return std::pair(x + 0.27 * y, y); });
  expect_moved(ImageOp::shear_y, -0.2,
               [](double x, double y) { return std::pair(x, y - 0.2 * x); });
  expect_moved(ImageOp::translate_x, 5, [](double x, double y) { return std::pair(x + 5, y); });
  expect_moved(ImageOp::translate_y, -4, [](double x, double y) { return std::pair(x, y - 4); });
}

TEST(ImageOps, RotatesCounterClockwiseAboutTheMiddle) {
  const double angle = 23.0, radians = angle * std::numbers::pi / 180;
  expect_moved(ImageOp::rotate, angle, [&](double x, double y) {
    const double dx = x - kWidth / 2.0, dy = y - kHeight / 2.0;
    return std::pair(std::cos(radians) * dx - std::sin(radians) * dy + kWidth / 2.0,
                     std::sin(radians) * dx + std::cos(radians) * dy + kHeight / 2.0);
  });
  // The bright pixel to the right of the middle goes up.
  at::Tensor image = at::zeros({1, 1, 9, 9}, at::kByte);
  image[0][0][4][7] = 255;
  EXPECT_EQ(apply_image_ops(image, {{ImageOp::rotate, 90}})[0][0][1][4].item<int>(), 255);
}

int blend(int base, int value, double factor) {
  return std::clamp(static_cast<int>(std::floor(base + factor * (value - base) + 1e-4)), 0, 255);
}

int grey_of(const Pixels& in, int y, int x) {
  return (in[0][y][x] * 19595 + in[1][y][x] * 38470 + in[2][y][x] * 7471 + 32768) >> 16;
}

// Factors that are whole multiples of 1/8, so that both sides round alike.
TEST(ImageOps, Brightness) {
  for (const double factor : {0.25, 1.0, 1.875}) {
    expect_definition(ImageOp::brightness, factor, 3, [&](const Pixels&) -> Definition {
      return [=](const Pixels& in, int c, int y, int x) { return blend(0, in[c][y][x], factor); };
    });
  }
}

TEST(ImageOps, Color) {
  for (const double factor : {0.125, 1.75}) {
    expect_definition(ImageOp::color, factor, 3, [&](const Pixels&) -> Definition {
      return [=](const Pixels& in, int c, int y, int x) {
        return blend(grey_of(in, y, x), in[c][y][x], factor);
      };
    });
  }
  // Without colour an image is what the other way to grey makes of it.
  const at::Tensor image = random_images(1, 3);
  const at::Tensor channels_last = image[0].permute({1, 2, 0}).contiguous();
  const auto* bytes = channels_last.data_ptr<std::uint8_t>();
  const Image levels =
      to_grey({image.size(2), image.size(3), 3, {bytes, bytes + channels_last.numel()}});
  const at::Tensor without = apply_image_ops(image, {{ImageOp::color, 0}});
  for (std::int64_t i = 0; i < image.size(2) * image.size(3); ++i) {
    ASSERT_EQ(without[0][2].flatten()[i].item<int>(), levels.pixels[static_cast<std::size_t>(i)]);
  }
  // A grey image has no colour to change.
  const at::Tensor grey = random_images(1, 1);
  EXPECT_TRUE(apply_image_ops(grey, {{ImageOp::color, 1.75}}).equal(grey));
}

TEST(ImageOps, Contrast) {
  for (const double factor : {0.5, 1.625}) {
    expect_definition(ImageOp::contrast, factor, 3, [&](const Pixels& in) -> Definition {
      double sum = 0;
      for (int y = 0; y < kHeight; ++y) {
        for (int x = 0; x < kWidth; ++x) sum += grey_of(in, y, x);
      }
      const int mean = static_cast<int>(sum / (kHeight * kWidth) + 0.5);
      return [=](const Pixels& image, int c, int y, int x) {
        return blend(mean, image[c][y][x], factor);
      };
    });
  }
}

TEST(ImageOps, Sharpness) {
  for (const double factor : {0.0, 0.5, 1.875}) {
    expect_definition(ImageOp::sharpness, factor, 3, [&](const Pixels&) -> Definition {
      return [=](const Pixels& in, int c, int y, int x) -> int {
        if (y == 0 || x == 0 || y == kHeight - 1 || x == kWidth - 1) return in[c][y][x];
        int sum = 4 * in[c][y][x];
        for (int dy = -1; dy <= 1; ++dy) {
          for (int dx = -1; dx <= 1; ++dx) sum += in[c][y + dy][x + dx];
        }
        return blend(static_cast<int>(sum / 13.0 + 0.5), in[c][y][x], factor);
      };
    });
  }
}

TEST(ImageOps, PosterizeKeepsTheUpperBits) {
  for (const int bits : {4, 6, 8}) {
    expect_definition(ImageOp::posterize, bits, 3, [&](const Pixels&) -> Definition {
      return [=](const Pixels& in, int c, int y, int x) {
        return in[c][y][x] / (1 << (8 - bits)) * (1 << (8 - bits));
      };
    });
  }
}

TEST(ImageOps, SolarizeAndInvert) {
  for (const double threshold : {0.0, 100.3, 255.0}) {
    expect_definition(ImageOp::solarize, threshold, 3, [&](const Pixels&) -> Definition {
      return [=](const Pixels& in, int c, int y, int x) {
        return in[c][y][x] < threshold ? in[c][y][x] : 255 - in[c][y][x];
      };
    });
  }
  expect_definition(ImageOp::invert, 77, 1, [](const Pixels&) -> Definition {
    return [](const Pixels& in, int c, int y, int x) { return 255 - in[c][y][x]; };
  });
}

std::vector<int> values_of(const Pixels& in, int c) {
  std::vector<int> values;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) values.push_back(in[c][y][x]);
  }
  return values;
}

TEST(ImageOps, AutoContrastStretchesEachChannel) {
  expect_definition(ImageOp::auto_contrast, 0, 3, [](const Pixels&) -> Definition {
    return [](const Pixels& in, int c, int y, int x) {
      const std::vector<int> values = values_of(in, c);
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      return (in[c][y][x] - *low) * 255 / (*high - *low);
    };
  });
  const at::Tensor flat = at::full({1, 3, 4, 4}, 50, at::kByte);
  EXPECT_TRUE(apply_image_ops(flat, {{ImageOp::auto_contrast, 0}}).equal(flat));
}

TEST(ImageOps, EqualizeFlattensTheHistogram) {
  // 221 pixels are too few for a step of one grey level: larger images here.
  at::Tensor images = at::empty({2, 3, 40, 40}, at::kByte);
  auto* pixels = images.data_ptr<std::uint8_t>();
  Draws draws(2, 0, 0, Purpose::shapes);
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(draws.below(60) + draws.below(60));
  }
  const at::Tensor result =
      apply_image_ops(images, {{ImageOp::equalize, 0}, {ImageOp::identity, 0}});
  EXPECT_TRUE(result[1].equal(images[1]));
  for (int c = 0; c < 3; ++c) {
    const auto* in = images[0][c].data_ptr<std::uint8_t>();
    const auto* out = result[0][c].data_ptr<std::uint8_t>();
    std::vector<int> histogram(256, 0);
    for (int i = 0; i < 1600; ++i) ++histogram[in[i]];
    int last = 255;
    while (histogram[last] == 0) --last;
    const int step = (1600 - histogram[last]) / 255;
    ASSERT_GT(step, 0);
    std::vector<int> table(256);
    int sum = step / 2;
    for (int value = 0; value < 256; ++value) {
      table[value] = std::min(255, sum / step);
      sum += histogram[value];
    }
    for (int i = 0; i < 1600; ++i) ASSERT_EQ(out[i], table[in[i]]);
  }
  const at::Tensor flat = at::full({1, 3, 40, 40}, 50, at::kByte);
  EXPECT_TRUE(apply_image_ops(flat, {{ImageOp::equalize, 0}}).equal(flat));
}

TEST(ImageOps, NeedsOneCallAnImage) {
  expect_contains(error_text([] {
                    apply_image_ops(random_images(3, 3), {{}, {}});
                  }),
                  "2 operations for 3 images");
}

}  // namespace
}  // namespace sape2::data
