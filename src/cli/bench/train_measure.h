#pragma once

#include "sape2/data/dataset.h"
#include "sape2/train/run_config.h"

#include <cstdint>
#include <string>

namespace sape2::cli {

/// Milliseconds of the parts of one training step, one after the other: a training run makes the
/// next batch while a step is computed, which hides some of the data's time.
struct StepTime {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;

  double total() const { return data + forward + backward + optimizer; }
};

struct TrainRow {
  std::int64_t batch_size = 0;
  StepTime fused;
  StepTime reference;

  /// Images a second of such a step.
  double images_per_second(const StepTime& step) const {
    return 1000 * static_cast<double>(batch_size) / step.total();
  }
};

/// Trains two copies of a model by turns, one on the fused attention and one on the plain formulas,
/// and keeps the fastest step of each.
TrainRow measure_training(const train::RunConfig& config, const data::Dataset& images, int rounds);

}  // namespace sape2::cli
