#include "sape2/base/error.h"
#include "sape2/data/mask.h"

#include "data/images/codecs.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

namespace sape2::data {
namespace {

// What libpng's callbacks share with us. libpng leaves by longjmp, so nothing with a destructor may
// live between setjmp and the calls into it; all storage lives here or in the caller.
struct PngState {
  std::span<const std::uint8_t> input;
  std::vector<std::uint8_t> output;
  std::vector<png_bytep> rows;
  Image image;
  char message[160] = "";
  bool too_large = false;
  bool as_values = false;  // stored numbers, not colours
  bool has_colours = false;
};

extern "C" {
void png_fail(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof state->message - 1);
  png_longjmp(png, 1);
}

void png_ignore(png_structp, png_const_charp) {}

void png_take(png_structp png, png_bytep target, size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->input.size()) png_error(png, "the file ends too early");
  std::memcpy(target, state->input.data(), count);
  state->input = state->input.subspan(count);
}

void png_give(png_structp png, png_bytep bytes, size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  state->output.insert(state->output.end(), bytes, bytes + count);
}

void png_no_flush(png_structp) {}
}

// Everything becomes 8 bits of grey, RGB, or either with alpha.
void ask_for_bytes(png_structp png, png_infop info) {
  png_set_scale_16(png);
  png_set_expand(png);
  png_set_interlace_handling(png);
  const png_byte type = png_get_color_type(png, info);
  if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(png);
  png_read_update_info(png, info);
}

// One number a pixel; anything else is no mask.
void ask_for_values(png_structp png, png_infop info, PngState& state) {
  const png_byte type = png_get_color_type(png, info);
  state.has_colours = (type != PNG_COLOR_TYPE_GRAY && type != PNG_COLOR_TYPE_PALETTE) ||
                      png_get_bit_depth(png, info) > 8;
  if (state.has_colours) png_error(png, "no mask");
  png_set_packing(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

bool read_all(png_structp png, png_infop info, PngState& state) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_read_fn(png, &state, png_take);
  png_set_user_limits(png, 1'000'000, 1'000'000);
  png_set_chunk_malloc_max(png, 16 << 20);
  png_set_chunk_cache_max(png, 128);
  png_read_info(png, info);
  state.image.height = png_get_image_height(png, info);
  state.image.width = png_get_image_width(png, info);
  if (static_cast<std::uint64_t>(state.image.height) * state.image.width > kMaxImagePixels) {
    state.too_large = true;
    return false;
  }
  if (state.as_values) {
    ask_for_values(png, info, state);
  } else {
    ask_for_bytes(png, info);
  }
  state.image.channels = png_get_channels(png, info);
  const std::size_t stride = png_get_rowbytes(png, info);
  state.image.pixels.resize(stride * state.image.height);
  state.rows.resize(state.image.height);
  for (std::size_t y = 0; y < state.rows.size(); ++y) {
    state.rows[y] = state.image.pixels.data() + y * stride;
  }
  png_read_image(png, state.rows.data());
  png_read_end(png, nullptr);
  return true;
}

bool write_all(png_structp png, png_infop info, const Image& image,
               std::span<const png_color> palette, PngState& state) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_write_fn(png, &state, png_give, png_no_flush);
  const int plain = image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB;
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8,
               palette.empty() ? plain : PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_write_info(png, info);
  const std::int64_t stride = image.width * image.channels;
  for (std::int64_t y = 0; y < image.height; ++y) {
    png_write_row(png, image.pixels.data() + y * stride);
  }
  png_write_end(png, nullptr);
  return true;
}

// The image of a file, as `state` asks for it.
Image decoded(std::span<const std::uint8_t> bytes, PngState& state) {
  state.input = bytes;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_fail, png_ignore);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  bool done = false;
  try {
    done = info && read_all(png, info, state);
  } catch (...) {
    png_destroy_read_struct(&png, &info, nullptr);
    throw;
  }
  png_destroy_read_struct(&png, &info, nullptr);
  if (state.too_large) check_image_size(state.image.height, state.image.width);
  if (state.has_colours) {
    throw Error(
        "its pixels are colours, or have 16 bits, expected numbers of classes: grey of up to 8 "
        "bits, or a palette");
  }
  if (!done) throw Error(std::string("damaged PNG (") + state.message + ")");
  return std::move(state.image);
}

std::vector<std::uint8_t> encoded(const Image& image, std::span<const png_color> palette) {
  PngState state;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &state, png_fail, png_ignore);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && write_all(png, info, image, palette, state);
  png_destroy_write_struct(&png, &info);
  if (!done) throw Error(std::string("cannot write a PNG (") + state.message + ")");
  return std::move(state.output);
}

bool has_all_pixels(const Image& image) {
  return image.pixels.size() ==
         static_cast<std::size_t>(image.height * image.width * image.channels);
}

}  // namespace

Image decode_png(std::span<const std::uint8_t> bytes) {
  PngState state;
  Image image = decoded(bytes, state);
  if (image.channels == 4) lay_over_white(image);
  return image;
}

Image decode_png_values(std::span<const std::uint8_t> bytes) {
  PngState state;
  state.as_values = true;
  return decoded(bytes, state);
}

std::vector<std::uint8_t> encode_png(const Image& image) {
  if ((image.channels != 1 && image.channels != 3) || !has_all_pixels(image)) {
    throw Error("an image to be written as PNG must have 1 or 3 channels and all its pixels");
  }
  return encoded(image, {});
}

std::vector<std::uint8_t> encode_mask(const Image& mask, std::span<const MaskColour> colours) {
  if (mask.channels != 1 || !has_all_pixels(mask) || colours.empty() ||
      colours.size() > PNG_MAX_PALETTE_LENGTH ||
      std::ranges::any_of(mask.pixels, [&](auto value) { return value >= colours.size(); })) {
    throw Error("a mask to be written must have one channel and a colour for each of its classes");
  }
  std::vector<png_color> palette;
  for (const auto& [red, green, blue] : colours) palette.push_back({red, green, blue});
  return encoded(mask, palette);
}

}  // namespace sape2::data
