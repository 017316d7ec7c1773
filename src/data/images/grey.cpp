#include "data/grey.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"

namespace sape2::data {

Image to_grey(const Image& image) {
  if (image.channels != 3) throw Error("only an image of three channels can be turned grey");
  Image grey{image.height, image.width, 1, {}};
  grey.pixels.reserve(image.pixels.size() / 3);
  for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    const int sum = image.pixels[i] * kGreyRed + image.pixels[i + 1] * kGreyGreen +
                    image.pixels[i + 2] * kGreyBlue;
    grey.pixels.push_back(static_cast<std::uint8_t>((sum + kGreyHalf) >> kGreyBits));
  }
  return grey;
}

}  // namespace sape2::data
