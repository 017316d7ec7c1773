#include "sape2/data/mask.h"

#include "sape2/base/error.h"

#include <fmt/format.h>

namespace sape2::data {
namespace {

bool differs_from_neighbour(const Image& mask, std::int64_t y, std::int64_t x) {
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return mask.pixels[static_cast<std::size_t>(row * mask.width + column)];
  };
  const std::uint8_t own = at(y, x);
  return (y > 0 && at(y - 1, x) != own) || (y + 1 < mask.height && at(y + 1, x) != own) ||
         (x > 0 && at(y, x - 1) != own) || (x + 1 < mask.width && at(y, x + 1) != own);
}

}  // namespace

Image resize_nearest(const Image& mask, std::int64_t height, std::int64_t width) {
  if (height < 1 || width < 1) throw Error("a mask cannot be resized to no pixels");
  if (mask.height == height && mask.width == width) return mask;
  Image result{height, width, mask.channels, {}};
  result.pixels.reserve(static_cast<std::size_t>(height * width * mask.channels));
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t row = (2 * y + 1) * mask.height / (2 * height);
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t column = (2 * x + 1) * mask.width / (2 * width);
      for (std::int64_t c = 0; c < mask.channels; ++c) {
        result.pixels.push_back(
            mask.pixels[static_cast<std::size_t>((row * mask.width + column) * mask.channels + c)]);
      }
    }
  }
  return result;
}

Image overlay(const Image& image, const Image& mask) {
  if (image.height != mask.height || image.width != mask.width || image.channels != 3 ||
      mask.channels != 1) {
    throw Error(fmt::format("a mask of {} × {} cannot be laid over an image of {} × {}", mask.width,
                            mask.height, image.width, image.height));
  }
  Image result = image;
  for (std::int64_t y = 0; y < mask.height; ++y) {
    for (std::int64_t x = 0; x < mask.width; ++x) {
      const std::int64_t at = y * mask.width + x;
      const std::uint8_t index = mask.pixels[static_cast<std::size_t>(at)];
      if (index == 0) continue;
      const MaskColour colour = mask_colour(index);
      const int share = differs_from_neighbour(mask, y, x) ? 256 : 112;
      for (std::int64_t c = 0; c < 3; ++c) {
        auto& value = result.pixels[static_cast<std::size_t>(3 * at + c)];
        value = static_cast<std::uint8_t>(
            (value * (256 - share) + colour[static_cast<std::size_t>(c)] * share) / 256);
      }
    }
  }
  return result;
}

}  // namespace sape2::data
