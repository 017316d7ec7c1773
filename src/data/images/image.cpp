#include "sape2/data/image.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/components.h"
#include "sape2/data/mask.h"

#include "data/files.h"
#include "data/images/codecs.h"
#include "data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sape2::data {
namespace {

constexpr std::array<std::uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::array<std::uint8_t, 3> kJpegSignature{0xFF, 0xD8, 0xFF};

bool starts_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> signature) {
  return bytes.size() >= signature.size() &&
         std::equal(signature.begin(), signature.end(), bytes.begin());
}

}  // namespace

#if !SAPE2_HAVE_IMAGES
namespace {
[[noreturn]] void refuse() {
  throw Error(
      "this build reads and writes no images: install libpng-dev and libjpeg-dev and build again");
}
}  // namespace
Image decode_png(std::span<const std::uint8_t>) {
  refuse();
}
Image decode_jpeg(std::span<const std::uint8_t>, const DecodeOptions&) {
  refuse();
}
Image decode_png_values(std::span<const std::uint8_t>) {
  refuse();
}
std::vector<std::uint8_t> encode_mask(const Image&, std::span<const MaskColour>) {
  refuse();
}
std::vector<std::uint8_t> encode_png(const Image&) {
  refuse();
}
#endif

void check_image_size(std::uint64_t height, std::uint64_t width) {
  if (height == 0 || width == 0) throw Error("the image has no pixels");
  if (height * width > kMaxImagePixels) {
    throw Error(fmt::format("the image has {} × {} pixels, more than the {} million allowed", width,
                            height, kMaxImagePixels >> 20));
  }
}

Image decode_image(std::span<const std::uint8_t> bytes, std::string_view name,
                   const DecodeOptions& options) {
  try {
    if (bytes.empty()) throw Error("the file is empty");
    if (starts_with(bytes, kPngSignature)) return decode_png(bytes);
    if (starts_with(bytes, kJpegSignature)) return decode_jpeg(bytes, options);
    throw Error("it is neither PNG nor JPEG");
  } catch (const Error& error) {
    throw Error(fmt::format("cannot read the image {}: {}", in_quotes(name), error.what()));
  }
}

Image read_image(const std::filesystem::path& path, const DecodeOptions& options) {
  return decode_image(read_file(path, kMaxImageFileBytes), path.native(), options);
}

Image read_mask(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path, kMaxImageFileBytes);
  try {
    if (!starts_with(bytes, kPngSignature)) throw Error("it is no PNG");
    return decode_png_values(bytes);
  } catch (const Error& error) {
    throw Error(fmt::format("cannot read the mask {}: {}", in_quotes(path), error.what()));
  }
}

void write_mask(const std::filesystem::path& path, const Image& mask,
                std::span<const MaskColour> colours) {
  write_file(path, encode_mask(mask, colours));
}

void write_png(const std::filesystem::path& path, const Image& image) {
  write_file(path, encode_png(image));
}

}  // namespace sape2::data
