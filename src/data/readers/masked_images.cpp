#include "data/readers/masked_images.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/mask.h"

#include "data/readers/listing.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

namespace sape2::data {
namespace {

Image read_mask_of(const MaskedFile& file, const Image& image, const MaskMeaning& meaning) {
  std::error_code ignored;
  if (!std::filesystem::exists(file.mask, ignored)) {
    throw Error(fmt::format("the image {} has no mask: there is no file {}", in_quotes(file.image),
                            in_quotes(file.mask)));
  }
  Image mask = read_mask(file.mask);
  if (mask.height != image.height || mask.width != image.width) {
    throw Error(fmt::format("the mask {} has {} × {} pixels, but its image {} has {} × {}",
                            in_quotes(file.mask), mask.width, mask.height, in_quotes(file.image),
                            image.width, image.height));
  }
  for (std::size_t i = 0; i < mask.pixels.size(); ++i) {
    const int index = meaning.classes[mask.pixels[i]];
    if (index == MaskMeaning::kUnknown) {
      const auto at = static_cast<std::int64_t>(i);
      throw Error(fmt::format("the mask {} has the label {} at row {}, column {}, expected {}",
                              in_quotes(file.mask), mask.pixels[i], at / mask.width,
                              at % mask.width, meaning.expected));
    }
    mask.pixels[i] = static_cast<std::uint8_t>(index);
  }
  return mask;
}

}  // namespace

MaskMeaning MaskMeaning::plain(std::size_t count) {
  MaskMeaning meaning{.classes = {},
                      .expected = fmt::format("0 … {}, or 255 where none counts", count - 1)};
  meaning.classes.fill(kUnknown);
  for (std::size_t i = 0; i < count; ++i) meaning.classes.at(i) = static_cast<int>(i);
  meaning.classes[kNotCounted] = kNotCounted;
  return meaning;
}

MaskedPixels read_masked(const std::vector<MaskedFile>& files, const MaskedReading& reading) {
  const auto count = static_cast<std::int64_t>(files.size());
  const std::int64_t side = reading.side, plane = side * side;
  MaskedPixels pixels{at::empty({count, 3, side, side}, at::kByte),
                      at::empty({count, side, side}, at::kByte)};
  auto* images = pixels.images.data_ptr<std::uint8_t>();
  auto* masks = pixels.masks.data_ptr<std::uint8_t>();
  at::parallel_for(0, count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const MaskedFile& file = files[static_cast<std::size_t>(i)];
      const Image image = read_image(file.image, reading.decode);
      const Image mask = read_mask_of(file, image, reading.meaning);
      copy_as_planes(resize(image, side, side), images + i * 3 * plane);
      std::ranges::copy(resize_nearest(mask, side, side).pixels, masks + i * plane);
    }
  });
  return pixels;
}

}  // namespace sape2::data
