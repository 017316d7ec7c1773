#pragma once

#include <ATen/core/Tensor.h>

/// What the task of segmentation computes, by itself.
namespace sape2::train {

/// The cross-entropy of logits `[B, classes, H, W]` and masks `[B, H, W]` uint8, summed over the
/// pixels that are counted; `smoothing` spreads that share of a pixel's target over all classes.
at::Tensor pixel_cross_entropy(const at::Tensor& logits, const at::Tensor& masks,
                               double smoothing = 0);

/// How many pixels are counted: a number, int64, on the masks' device.
at::Tensor counted_pixels(const at::Tensor& masks);

}  // namespace sape2::train
