#pragma once

#include "sape2/data/dataset.h"
#include "sape2/data/image.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sape2::data {

/// An image and its mask, each in a file.
struct MaskedFile {
  std::filesystem::path image, mask;
};

/// What the numbers in mask files mean.
struct MaskMeaning {
  static constexpr int kUnknown = -1;

  std::array<int, 256> classes;  ///< a class, kNotCounted or kUnknown
  std::string expected;          ///< the numbers that mean something, for messages

  /// Numbers 0 … count-1 are the classes, 255 is not counted.
  static MaskMeaning plain(std::size_t count);
};

struct MaskedReading {
  std::int64_t side = 0;
  MaskMeaning meaning;
  DecodeOptions decode = {};
};

/// Reads `[N, 3, side, side]` and `[N, side, side]`. Image and mask are stretched to the square
/// alike, the mask by the nearest pixel: nothing is cut off. Throws Error with one sentence that
/// names the file where a mask is missing, has not its image's size, or holds an unknown number.
struct MaskedPixels {
  at::Tensor images, masks;
};
MaskedPixels read_masked(const std::vector<MaskedFile>& files, const MaskedReading& reading);

}  // namespace sape2::data
