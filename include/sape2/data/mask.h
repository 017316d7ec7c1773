#pragma once

#include "sape2/data/image.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

/// Masks as files: PNG whose pixels are numbers of classes. In memory a mask is an Image of one
/// channel.
namespace sape2::data {

using MaskColour = std::array<std::uint8_t, 3>;

/// The numbers that a PNG stores, as they are: grey values of 1 to 8 bits unscaled, or indices into
/// a palette. Colours, transparency beside grey, and 16 bits are an Error that names the file.
Image read_mask(const std::filesystem::path& path);

/// Each pixel becomes the one of `mask` that its middle falls on.
Image resize_nearest(const Image& mask, std::int64_t height, std::int64_t width);

/// A colour for each class, then for ever: 0 is black, neighbours differ clearly.
MaskColour mask_colour(std::int64_t index);

/// A mask as a PNG with a palette: programs read numbers of classes, people see colours. Every
/// number must have its colour.
std::vector<std::uint8_t> encode_mask(const Image& mask, std::span<const MaskColour> colours);
void write_mask(const std::filesystem::path& path, const Image& mask,
                std::span<const MaskColour> colours);

/// The image with the classes of a mask of the same size laid over it in their colours, but for
/// class 0, which stays as it is; boundaries between classes are drawn in full colour.
Image overlay(const Image& image, const Image& mask);

}  // namespace sape2::data
