#pragma once

#include <cstdint>
#include <vector>

namespace sape2::data {

/// Mean and deviation of each channel, of pixels scaled to 0 … 1. Both empty: pixels are only
/// scaled.
struct Normalisation {
  std::vector<double> mean;
  std::vector<double> deviation;
};

/// A channel's normalisation as it is computed: `(byte − offset) · factor` in float32, where
/// `offset` = 255·mean and `factor` = 1/(255·deviation), each rounded once. Training (also by the
/// CUDA kernel) and inference share it, so that a model sees the same bits in both. A difference
/// before a product cannot be fused, so no compiler changes the result.
struct ByteScale {
  float offset = 0;
  float factor = 0;

  float operator()(std::uint8_t byte) const { return (static_cast<float>(byte) - offset) * factor; }
};

/// One for each channel. Throws Error if the numbers are not as many as the channels, or a
/// deviation is not positive.
std::vector<ByteScale> byte_scales(const Normalisation& normalisation, std::int64_t channels);

}  // namespace sape2::data
