#include "sape2/infer/pixel_logits.h"

#include "sape2/base/error.h"
#include "sape2/infer/prediction.h"

#include <algorithm>
#include <string>

namespace sape2::infer {
namespace {

/// Where the middle of a pixel lies between the middles of two patches. Beyond the outer ones
/// nothing changes.
struct Place {
  std::int64_t first, second;
  float share;  // of the second
};

Place place_of(std::int64_t pixel, std::int64_t pixels, std::int64_t patches) {
  const double step = static_cast<double>(patches) / static_cast<double>(pixels);
  const double middle = std::clamp((static_cast<double>(pixel) + 0.5) * step - 0.5, 0.0,
                                   static_cast<double>(patches - 1));
  const auto first = static_cast<std::int64_t>(middle);
  return {first, std::min(first + 1, patches - 1),
          static_cast<float>(middle - static_cast<double>(first))};
}

// More could not be numbered by the mask's bytes.
constexpr std::int64_t kMostClasses = 256;

// A side or a count that is absurd must not wrap around in a product.
constexpr std::int64_t kMostOfOne = std::int64_t{1} << 20;

bool is_size(nn::Size2d size) {
  return size.height >= 1 && size.height <= kMostOfOne && size.width >= 1 &&
         size.width <= kMostOfOne;
}

void blend(const float* first, const float* second, float share, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = (1 - share) * first[i] + share * second[i];
}

}  // namespace

PixelLogits::PixelLogits(std::span<const float> patches, nn::Size2d grid, std::int64_t classes)
    : patches_(patches.begin(), patches.end()), grid_(grid), classes_(classes) {
  if (classes < 1 || classes > kMostOfOne || !is_size(grid)) {
    throw Error("a grid of " + std::to_string(grid.height) + "×" + std::to_string(grid.width) +
                " patches and " + std::to_string(classes) +
                " classes has no logits, expected numbers from 1 to " + std::to_string(kMostOfOne));
  }
  if (static_cast<std::int64_t>(patches.size()) != grid.height * grid.width * classes) {
    throw Error("there are " + std::to_string(patches.size()) +
                " logits, expected one for each of " + std::to_string(grid.height) + "×" +
                std::to_string(grid.width) + " patches and " + std::to_string(classes) +
                " classes");
  }
  require_finite(patches);
}

std::vector<float> PixelLogits::at(nn::Size2d size, std::int64_t y, std::int64_t x) const {
  if (y < 0 || y >= size.height || x < 0 || x >= size.width) {
    throw Error("there is no pixel " + std::to_string(y) + "," + std::to_string(x) +
                "; rows are 0 … " + std::to_string(size.height - 1) + " and columns 0 … " +
                std::to_string(size.width - 1) + " here");
  }
  const Place down = place_of(y, size.height, grid_.height);
  const Place across = place_of(x, size.width, grid_.width);
  const auto patch = [&](std::int64_t row, std::int64_t col) {
    return patches_.data() + (row * grid_.width + col) * classes_;
  };
  std::vector<float> left(static_cast<std::size_t>(classes_)), right = left;
  blend(patch(down.first, across.first), patch(down.second, across.first), down.share, left);
  blend(patch(down.first, across.second), patch(down.second, across.second), down.share, right);
  blend(left.data(), right.data(), across.share, left);
  return left;
}

MaskPrediction PixelLogits::mask(nn::Size2d size) const {
  if (!is_size(size) ||
      size.height * size.width > static_cast<std::int64_t>(data::kMaxImagePixels)) {
    throw Error("a mask of " + std::to_string(size.height) + "×" + std::to_string(size.width) +
                " pixels cannot be made, expected 1 × 1 to " +
                std::to_string(data::kMaxImagePixels >> 20) + " million pixels");
  }
  if (classes_ > kMostClasses) {
    throw Error("a mask cannot number " + std::to_string(classes_) + " classes, expected at most " +
                std::to_string(kMostClasses));
  }
  MaskPrediction result{{size.height, size.width, 1, {}}, {}};
  result.mask.pixels.reserve(static_cast<std::size_t>(size.height * size.width));
  std::vector<Place> columns;
  for (std::int64_t x = 0; x < size.width; ++x) {
    columns.push_back(place_of(x, size.width, grid_.width));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes_));
  std::vector<float> row(static_cast<std::size_t>(grid_.width * classes_)), pixel(counts.size());
  for (std::int64_t y = 0; y < size.height; ++y) {
    const Place down = place_of(y, size.height, grid_.height);
    const auto patches_of = [&](std::int64_t number) {
      return patches_.data() + number * grid_.width * classes_;
    };
    blend(patches_of(down.first), patches_of(down.second), down.share, row);
    for (const Place& across : columns) {
      blend(row.data() + across.first * classes_, row.data() + across.second * classes_,
            across.share, pixel);
      const auto best = std::ranges::max_element(pixel) - pixel.begin();
      result.mask.pixels.push_back(static_cast<std::uint8_t>(best));
      ++counts[static_cast<std::size_t>(best)];
    }
  }
  for (const std::int64_t count : counts) {
    result.shares.push_back(static_cast<double>(count) /
                            static_cast<double>(size.height * size.width));
  }
  return result;
}

}  // namespace sape2::infer
