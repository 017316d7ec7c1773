#include "sape2/data/image.h"

namespace sape2::data {

void lay_over_white(Image& image) {
  const std::size_t count = image.pixels.size() / 4;
  std::uint8_t* out = image.pixels.data();
  const std::uint8_t* in = image.pixels.data();
  for (std::size_t i = 0; i < count; ++i, in += 4, out += 3) {
    const int alpha = in[3];
    for (int c = 0; c < 3; ++c) {
      out[c] = static_cast<std::uint8_t>((in[c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
  }
  image.pixels.resize(count * 3);
  image.channels = 3;
}

}  // namespace sape2::data
