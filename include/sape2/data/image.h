#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace sape2::data {

/// An image of bytes, rows from top to bottom, channels of a pixel side by side.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::vector<std::uint8_t> pixels;  ///< height × width × channels
};

/// Larger files and images are refused before they are unpacked.
inline constexpr std::uint64_t kMaxImageFileBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxImagePixels = std::uint64_t{64} << 20;

/// What is done with files that a strict reader would turn or refuse. The default is right for
/// photographs of users; published data sets are taken as they are.
struct DecodeOptions {
  bool oriented = true;  ///< a JPEG is turned as its EXIF orientation asks
  bool whole = true;     ///< a JPEG that ends early is refused; else libjpeg fills the rest
};

/// Reads a PNG or JPEG file of any kind as RGB: grey is repeated, palettes are looked up, 16 bits
/// are scaled to 8, transparent pixels are laid over white, CMYK is converted, and a JPEG is turned
/// as its EXIF orientation asks. Whatever cannot be read whole is an Error naming the file.
Image read_image(const std::filesystem::path& path, const DecodeOptions& options = {});

/// The same from memory; `name` stands for the file in messages.
Image decode_image(std::span<const std::uint8_t> bytes, std::string_view name,
                   const DecodeOptions& options = {});

/// Stretches to height × width with a triangle filter as wide as the reduction (antialiased).
Image resize(const Image& image, std::int64_t height, std::int64_t width);

/// Scales the image, its proportions kept, until it covers height × width, and cuts out the middle.
Image resize_to_cover(const Image& image, std::int64_t height, std::int64_t width);

/// The brightness of an RGB image (Rec. 601), as one channel.
Image to_grey(const Image& image);

/// An image of RGB and alpha as RGB, laid over white.
void lay_over_white(Image& image);

/// An image of 1 (grey) or 3 (RGB) channels as the bytes of a PNG file.
std::vector<std::uint8_t> encode_png(const Image& image);

/// Writes such an image.
void write_png(const std::filesystem::path& path, const Image& image);

}  // namespace sape2::data
