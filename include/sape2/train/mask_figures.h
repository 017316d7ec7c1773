#pragma once

#include "sape2/train/figures.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sape2::dist {
class Group;
}

/// How well predicted masks agree with true ones. docs/segmentation.md defines each figure.
namespace sape2::train {

/// The distance in pixels up to which boundaries count as met: 0.75 % of the image's diagonal,
/// rounded, and at least 1.
int64_t boundary_tolerance(int64_t height, int64_t width);

/// Masks `[B, H, W]` uint8 on the CPU in which every pixel that is not counted has the class of the
/// counted pixel that is fewest steps to the four neighbours away, of several the lowest class. A
/// mask without a counted pixel stays as it is.
at::Tensor filled_masks(const at::Tensor& masks);

/// The boundary of the class in masks `[B, H, W]`: its pixels with a neighbour, of four, of another
/// class. `[B, H, W]` bool.
at::Tensor boundary_of(const at::Tensor& masks, int64_t index);

/// Sums over batches, on the device of the predictions: a GPU is asked once, at the end.
class MaskCounts {
 public:
  MaskCounts(int64_t classes, at::Device device);

  /// Classes predicted `[B, H, W]` int64 on the device, and true masks `[B, H, W]` uint8.
  void add(const at::Tensor& predicted, const at::Tensor& masks);

  /// Over all processes, some of which may have had no image.
  void add_up(dist::Group& group);

  /// Counts of pixels `[classes, classes]` int64 on the CPU: row the true class.
  at::Tensor confusion() const;

  /// `mean_iou`, `boundary_f1`, `pixel_accuracy`.
  Figures figures() const;

 private:
  int64_t classes_;
  at::Tensor confusion_;
  at::Tensor boundary_sum_, boundary_images_;  // (classes) of F1, and of images that have it
};

/// Intersection over union of each class; NaN if a class is neither true nor predicted
/// anywhere.
std::vector<double> class_ious(const at::Tensor& confusion);

/// The mean of those that are numbers; 0 if there is none.
double mean_iou(const at::Tensor& confusion);

double pixel_accuracy(const at::Tensor& confusion);

}  // namespace sape2::train
