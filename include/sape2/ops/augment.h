#pragma once

#include "sape2/kernels/cuda_training.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

/// Augmentation of a whole batch in two launches on an NVIDIA GPU, from a plan drawn on the host.
namespace sape2::ops {

struct AugmentPlan {
  std::vector<kernels::cuda::PlannedImage> images;
  /// (images, operations)
  std::vector<kernels::cuda::PlannedOperation> calls;
  bool mixes = false;
};

struct AugmentSettings {
  int64_t classes = 0;
  int64_t padding = 0;
  float target = 1;        ///< of an image's class
  float other_target = 0;  ///< of the others
  std::array<float, 4> mean = {};
  std::array<float, 4> factor = {};  ///< (byte − mean) · factor, a channel
};

struct AugmentedBatch {
  at::Tensor images;   ///< [B, C, H, W] float32
  at::Tensor targets;  ///< [B, classes] float32
};

/// Whether it can be done for images `[N, C, H, W]` uint8.
bool can_augment(const at::Tensor& data);

/// `data` and `labels` are the whole data set, on the GPU.
AugmentedBatch augment(const at::Tensor& data, const at::Tensor& labels, const AugmentPlan& plan,
                       const AugmentSettings& settings);

}  // namespace sape2::ops
