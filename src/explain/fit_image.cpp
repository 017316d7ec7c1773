#include "sape2/base/error.h"
#include "sape2/explain/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::explain {
namespace {

std::int64_t whole_patches(double pixels, std::int64_t patch) {
  const double count = std::round(pixels / static_cast<double>(patch));
  // An image of absurd proportions would not fit a whole number.
  return static_cast<std::int64_t>(std::clamp(count, 1.0, 1e6)) * patch;
}

}  // namespace

data::Image fit_image(const data::Image& image, const nn::ViTConfig& vit, const InputSize& size,
                      std::int64_t most_patches) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  const double scale = size.shorter_side > 0
                           ? static_cast<double>(size.shorter_side) / std::min(height, width)
                           : std::max(static_cast<double>(vit.image_size.height) / height,
                                      static_cast<double>(vit.image_size.width) / width);
  const std::int64_t rows = whole_patches(height * scale, vit.patch_size.height);
  const std::int64_t cols = whole_patches(width * scale, vit.patch_size.width);
  const std::int64_t patches = rows / vit.patch_size.height * (cols / vit.patch_size.width);
  if (patches > most_patches) {
    throw Error(fmt::format(
        "an image of {}×{} pixels would become {}×{}, which is {} patches and more than "
        "the {} allowed; ask for a smaller size or cut the image",
        image.height, image.width, rows, cols, patches, most_patches));
  }
  if (rows == image.height && cols == image.width) return image;
  return data::resize(image, rows, cols);
}

}  // namespace sape2::explain
