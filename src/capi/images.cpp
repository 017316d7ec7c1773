#include "sape2/data/image.h"

#include "capi/status.h"
#include "sape2_images.h"

#include <algorithm>
#include <cstdlib>
#include <new>

using namespace sape2;
using namespace sape2::capi;

namespace {

// As malloc's, because the caller frees them without knowing of std::vector.
void hand_out(const data::Image& read, sape2_infer_image* image) {
  auto* pixels = static_cast<std::uint8_t*>(std::malloc(read.pixels.size()));
  if (pixels == nullptr) throw std::bad_alloc();
  std::ranges::copy(read.pixels, pixels);
  image->pixels = pixels;
  image->height = read.height;
  image->width = read.width;
  image->channels = read.channels;
  image->row_bytes = 0;
}

}  // namespace

sape2_infer_status sape2_images_read(const char* path, sape2_infer_image* image) {
  return guarded(SAPE2_INFER_BAD_FILE, [&] {
    check_given(path, "path");
    check_struct(image, "image");
    hand_out(data::read_image(path), image);
  });
}

sape2_infer_status sape2_images_decode(const void* file, size_t bytes, const char* name,
                                       sape2_infer_image* image) {
  return guarded(SAPE2_INFER_BAD_FILE, [&] {
    check_given(file, "file");
    check_struct(image, "image");
    const std::span content(static_cast<const std::uint8_t*>(file), bytes);
    hand_out(data::decode_image(content, name != nullptr ? name : "the image in memory"), image);
  });
}

void sape2_images_free(sape2_infer_image* image) {
  if (image == nullptr) return;
  std::free(const_cast<std::uint8_t*>(image->pixels));
  image->pixels = nullptr;
}

const char* sape2_images_last_error(void) {
  return last_sentence();
}
