#include "sape2/base/error.h"
#include "sape2/data/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::data {
namespace {

// Ours, because a library's (libswscale, OpenCV) rounds as it likes. Weights are whole numbers of
// 2^-22, so that the result is the same on every machine.
constexpr int kWeightBits = 22;

// The source samples one output sample is made of.
struct Taps {
  std::int64_t first;
  std::vector<std::int32_t> weights;
};

// A triangle filter over source samples [begin, end), widened where the image gets smaller.
std::vector<Taps> make_taps(std::int64_t source, double begin, double end, std::int64_t target) {
  const double scale = (end - begin) / static_cast<double>(target);
  const double support = std::max(scale, 1.0);
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < target; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, std::llround(std::floor(centre - support)));
    const auto last = std::min<std::int64_t>(source - 1, std::llround(std::ceil(centre + support)));
    std::vector<double> exact;
    double sum = 0;
    for (std::int64_t s = first; s <= last; ++s) {
      const double distance = std::abs((static_cast<double>(s) + 0.5 - centre) / support);
      exact.push_back(std::max(0.0, 1 - distance));
      sum += exact.back();
    }
    Taps taps{first, {}};
    std::int32_t rest = 1 << kWeightBits;
    for (const double weight : exact) {
      taps.weights.push_back(
          static_cast<std::int32_t>(std::lround(weight / sum * (1 << kWeightBits))));
      rest -= taps.weights.back();
    }
    // What rounding lost goes to the heaviest sample: a flat image stays as it is.
    *std::max_element(taps.weights.begin(), taps.weights.end()) += rest;
    all.push_back(std::move(taps));
  }
  return all;
}

std::uint8_t to_byte(std::int64_t sum) {
  return static_cast<std::uint8_t>(
      std::clamp<std::int64_t>((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 0, 255));
}

struct Box {
  double left, top, right, bottom;
};

Image resample(const Image& image, const Box& box, std::int64_t height, std::int64_t width) {
  const std::int64_t channels = image.channels;
  const std::vector<Taps> across = make_taps(image.width, box.left, box.right, width);
  const std::vector<Taps> down = make_taps(image.height, box.top, box.bottom, height);
  const std::int64_t first_row = down.front().first;
  const std::int64_t last_row =
      down.back().first + static_cast<std::int64_t>(down.back().weights.size());

  std::vector<std::uint8_t> narrow((last_row - first_row) * width * channels);
  for (std::int64_t y = first_row; y < last_row; ++y) {
    const std::uint8_t* row = image.pixels.data() + y * image.width * channels;
    std::uint8_t* out = narrow.data() + (y - first_row) * width * channels;
    for (const Taps& taps : across) {
      for (std::int64_t c = 0; c < channels; ++c) {
        std::int64_t sum = 0;
        const std::uint8_t* in = row + taps.first * channels + c;
        for (std::size_t k = 0; k < taps.weights.size(); ++k)
          sum += taps.weights[k] * in[k * channels];
        *out++ = to_byte(sum);
      }
    }
  }

  const std::int64_t stride = width * channels;
  Image result{height, width, channels, std::vector<std::uint8_t>(height * stride)};
  std::vector<std::int32_t> sums(stride);
  for (std::int64_t y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 0);
    const Taps& taps = down[y];
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      const std::uint8_t* row =
          narrow.data() + (taps.first - first_row + static_cast<std::int64_t>(k)) * stride;
      for (std::int64_t x = 0; x < stride; ++x) sums[x] += taps.weights[k] * row[x];
    }
    for (std::int64_t x = 0; x < stride; ++x) result.pixels[y * stride + x] = to_byte(sums[x]);
  }
  return result;
}

void check_target(std::int64_t height, std::int64_t width) {
  if (height < 1 || width < 1 || height > 16384 || width > 16384) {
    throw Error(fmt::format("an image cannot be resized to {} × {} pixels, expected 1 … 16384 each",
                            width, height));
  }
}

}  // namespace

Image resize(const Image& image, std::int64_t height, std::int64_t width) {
  check_target(height, width);
  if (image.height == height && image.width == width) return image;
  const Box whole{0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
  return resample(image, whole, height, width);
}

Image resize_to_cover(const Image& image, std::int64_t height, std::int64_t width) {
  check_target(height, width);
  if (image.height == height && image.width == width) return image;
  const double image_height = static_cast<double>(image.height);
  const double image_width = static_cast<double>(image.width);
  const double scale = std::min(image_height / static_cast<double>(height),
                                image_width / static_cast<double>(width));
  const double half_height = scale * static_cast<double>(height) / 2;
  const double half_width = scale * static_cast<double>(width) / 2;
  const Box middle{image_width / 2 - half_width, image_height / 2 - half_height,
                   image_width / 2 + half_width, image_height / 2 + half_height};
  return resample(image, middle, height, width);
}

}  // namespace sape2::data
