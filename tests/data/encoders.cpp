#include "data/encoders.h"

#include <jpeglib.h>
#include <png.h>

#include <cstdio>
#include <cstdlib>

namespace sape2::data::test {
namespace {

extern "C" void append(png_structp png, png_bytep bytes, size_t count) {
  auto* output = static_cast<Bytes*>(png_get_io_ptr(png));
  output->insert(output->end(), bytes, bytes + count);
}

extern "C" void no_flush(png_structp) {}

}  // namespace

Bytes png(std::int64_t height, std::int64_t width, int depth, int type, const Bytes& rows,
          bool interlaced) {
  Bytes output;
  png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(writer);
  png_set_write_fn(writer, &output, append, no_flush);
  png_set_IHDR(writer, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               depth, type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (type == PNG_COLOR_TYPE_PALETTE) {
    const png_color palette[] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
    png_set_PLTE(writer, info, palette, 3);
  }
  png_write_info(writer, info);
  const std::size_t stride = png_get_rowbytes(writer, info);
  std::vector<png_bytep> pointers;
  for (std::int64_t y = 0; y < height; ++y) {
    pointers.push_back(const_cast<png_bytep>(rows.data() + static_cast<std::size_t>(y) * stride));
  }
  png_write_image(writer, pointers.data());
  png_write_end(writer, nullptr);
  png_destroy_write_struct(&writer, &info);
  return output;
}

Bytes jpeg(const Image& image, bool progressive) {
  jpeg_compress_struct writer{};
  jpeg_error_mgr errors;
  writer.err = jpeg_std_error(&errors);
  jpeg_create_compress(&writer);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&writer, &memory, &size);
  writer.image_height = static_cast<JDIMENSION>(image.height);
  writer.image_width = static_cast<JDIMENSION>(image.width);
  writer.input_components = static_cast<int>(image.channels);
  writer.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                          : image.channels == 3 ? JCS_RGB
                                                : JCS_CMYK;
  jpeg_set_defaults(&writer);
  jpeg_set_quality(&writer, 98, TRUE);
  if (progressive) jpeg_simple_progression(&writer);
  jpeg_start_compress(&writer, TRUE);
  while (writer.next_scanline < writer.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data() +
                                     writer.next_scanline * image.width * image.channels);
    jpeg_write_scanlines(&writer, &row, 1);
  }
  jpeg_finish_compress(&writer);
  jpeg_destroy_compress(&writer);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

Bytes with_orientation(const Bytes& jpeg, int orientation, bool little_endian) {
  const auto value = static_cast<std::uint8_t>(orientation);
  const Bytes tiff = little_endian ? Bytes{'I', 'I', 42, 0, 8, 0,     0, 0, 1, 0, 0x12, 0x01, 3,
                                           0,   1,   0,  0, 0, value, 0, 0, 0, 0, 0,    0,    0}
                                   : Bytes{'M', 'M', 0, 42, 0, 0, 0,     8, 0, 1, 0x01, 0x12, 0,
                                           3,   0,   0, 0,  1, 0, value, 0, 0, 0, 0,    0,    0};
  Bytes segment{0xFF, 0xE1, 0, static_cast<std::uint8_t>(2 + 6 + tiff.size()), 'E', 'x', 'i',
                'f',  0,    0};
  segment.insert(segment.end(), tiff.begin(), tiff.end());
  Bytes result = jpeg;
  result.insert(result.begin() + 2, segment.begin(), segment.end());
  return result;
}

}  // namespace sape2::data::test
