#include "data/images/codecs.h"

#include <algorithm>
#include <cstring>

// Ours, because one number is wanted of EXIF, and libexif reads all of it, from files nobody knows.
namespace sape2::data {
namespace {

constexpr std::size_t kTiffStart = 6;  // after "Exif\0\0"
constexpr std::uint32_t kOrientationTag = 0x0112;

// Reads numbers of a TIFF structure; whatever lies outside of it reads as 0.
class TiffReader {
 public:
  explicit TiffReader(std::span<const std::uint8_t> bytes)
      : bytes_(bytes), little_endian_(bytes.size() > 1 && bytes[0] == 'I') {}

  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value = value << 8 | bytes_[at + (little_endian_ ? size - 1 - i : i)];
    }
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool little_endian_;
};

}  // namespace

int exif_orientation(std::span<const std::uint8_t> segment) {
  if (segment.size() < kTiffStart + 8 || std::memcmp(segment.data(), "Exif\0", 6) != 0) return 1;
  const TiffReader tiff(segment.subspan(kTiffStart));
  const std::size_t directory = tiff.number(4, 4);
  const std::uint32_t entries = tiff.number(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t{12} * i;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const std::uint32_t value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image oriented(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool swapped = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned{swapped ? image.width : image.height, swapped ? image.height : image.width,
               image.channels, std::vector<std::uint8_t>(image.pixels.size())};
  std::uint8_t* out = turned.pixels.data();
  for (std::int64_t y = 0; y < turned.height; ++y) {
    for (std::int64_t x = 0; x < turned.width; ++x) {
      const std::int64_t across = swapped ? y : x, down = swapped ? x : y;
      const std::int64_t from_x = from_right ? image.width - 1 - across : across;
      const std::int64_t from_y = from_bottom ? image.height - 1 - down : down;
      out = std::copy_n(&image.pixels[(from_y * image.width + from_x) * image.channels],
                        image.channels, out);
    }
  }
  return turned;
}

}  // namespace sape2::data
