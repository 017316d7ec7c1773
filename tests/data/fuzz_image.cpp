// Any bytes as a PNG or JPEG file: refused in a sentence, or an image that is whole.
#include "sape2/base/error.h"
#include "sape2/data/image.h"

#include "support/fuzz_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using sape2::testing::require;
  try {
    const sape2::data::Image image = sape2::data::decode_image({data, size}, "input");
    require(image.height > 0 && image.width > 0 && image.channels == 3, "the image has no shape");
    require(static_cast<std::uint64_t>(image.height * image.width) <= sape2::data::kMaxImagePixels,
            "the image is larger than allowed");
    require(image.pixels.size() == static_cast<std::size_t>(image.height * image.width * 3),
            "the image lacks pixels");
  } catch (const sape2::Error& error) {
    sape2::testing::require_sentence(error.what());
  }
  return 0;
}
