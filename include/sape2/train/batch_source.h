#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sape2::train {

/// What one training step learns from.
struct Batch {
  at::Tensor images;  ///< `[B, channels, height, width]` float32, normalised, on the model's device
  /// What the task's loss compares outputs with: `[B, classes]` float32 probabilities that sum to
  /// one, or masks `[B, height, width]` uint8.
  at::Tensor targets;
  /// Where these images begin in the batch of all processes, and its size; 0: they are all of it.
  int64_t begin = 0;
  int64_t whole = 0;
};

/// Where batches come from. A batch depends on the source's seed, the epoch and the step only, so
/// that a run can go on anywhere.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int64_t steps_per_epoch() const = 0;
  /// Of all processes together.
  virtual int64_t images_per_step() const = 0;

  /// The batch of a step of an epoch, both from 0, or this process's part of it. Asked for in
  /// rising order, except for a restart.
  virtual Batch batch(int64_t epoch, int64_t step) = 0;
};

}  // namespace sape2::train
