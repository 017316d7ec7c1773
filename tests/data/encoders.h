#pragma once

#include "sape2/data/image.h"

#include "data/files.h"

namespace sape2::data::test {

/// A PNG of any depth and colour type (libpng's constants) from its raw rows.
Bytes png(std::int64_t height, std::int64_t width, int depth, int type, const Bytes& rows,
          bool interlaced = false);

/// A JPEG of 1 (grey), 3 (RGB) or 4 (CMYK as Adobe's programs write it) channels.
Bytes jpeg(const Image& image, bool progressive = false);

/// The same JPEG with an EXIF orientation, in either byte order.
Bytes with_orientation(const Bytes& jpeg, int orientation, bool little_endian);

}  // namespace sape2::data::test
