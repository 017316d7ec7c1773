#pragma once

#include "sape2/data/image.h"
#include "sape2/nn/vit_config.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sape2::infer {

/// The classes of an image's pixels.
struct MaskPrediction {
  data::Image mask;            ///< one channel
  std::vector<double> shares;  ///< of the pixels, a class each
};

/// The logits of a model for segmentation on one image: those of patches, upsampled to pixels of
/// any size as nn::ViT::forward_pixels() does it.
class PixelLogits {
 public:
  /// `patches`: (rows, cols, classes), as Session::run() gives them. Throws NotFinite if one is not
  /// a finite number, and Error if there are not as many or a size is none.
  PixelLogits(std::span<const float> patches, nn::Size2d grid, std::int64_t classes);

  /// One pixel's logits, (classes), where the image has `size` pixels. Throws Error if there is no
  /// such pixel.
  std::vector<float> at(nn::Size2d size, std::int64_t y, std::int64_t x) const;

  /// The class with the largest logit of each of `size` pixels, the lowest if several are equal.
  /// Throws Error for a size that no image has, and for more classes than a byte numbers.
  MaskPrediction mask(nn::Size2d size) const;

  /// Memory that this holds.
  std::size_t bytes() const { return patches_.size() * sizeof(float); }

 private:
  std::vector<float> patches_;
  nn::Size2d grid_;
  std::int64_t classes_;
};

}  // namespace sape2::infer
