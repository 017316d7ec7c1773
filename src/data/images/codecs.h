#pragma once

#include "sape2/data/image.h"

#include <span>

/// The two formats behind decode_image(). They throw an Error that says what is wrong with the
/// file; the caller puts the file's name before it.
namespace sape2::data {

Image decode_png(std::span<const std::uint8_t> bytes);
Image decode_jpeg(std::span<const std::uint8_t> bytes, const DecodeOptions& options);

/// The numbers a PNG stores, for masks: see read_mask().
Image decode_png_values(std::span<const std::uint8_t> bytes);

/// Refuses images of no or too many pixels.
void check_image_size(std::uint64_t height, std::uint64_t width);

/// The orientation 1 … 8 an EXIF block (an APP1 segment's content) asks for; 1 where it says none.
int exif_orientation(std::span<const std::uint8_t> segment);

/// Turns and mirrors the image so that orientation 1 shows it upright.
Image oriented(Image image, int orientation);

}  // namespace sape2::data
