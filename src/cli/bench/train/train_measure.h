#pragma once

#include "sape2/data/dataset.h"
#include "sape2/train/run_config.h"

#include <cstdint>
#include <optional>

namespace sape2::cli {

/// Steps before the first that is measured: a GPU's step is recorded after some.
constexpr int kWarmUpSteps = 6;

/// Milliseconds of the parts of one training step, one after the other: a training run makes the
/// next batch while a step is computed, which hides some of the data's time.
struct StepTime {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;

  double total() const { return data + forward + backward + optimizer; }
};

/// What only a GPU has: its step as training runs it, and its limits.
struct GpuFigures {
  double step = 0;              ///< milliseconds of a step in a row of them, batches made meanwhile
  double teraflops = 0;         ///< of matrix work in a second of such steps
  double ceiling = 0;           ///< … of one large product in the same precision
  std::int64_t peak_bytes = 0;  ///< of the GPU's memory
};

struct TrainRow {
  std::int64_t batch_size = 0;
  StepTime fused;
  std::optional<StepTime> reference;  ///< on the CPU only
  std::optional<GpuFigures> gpu;

  /// Images a second of such a step.
  double images_per_second(const StepTime& step) const {
    return 1000 * static_cast<double>(batch_size) / step.total();
  }
};

/// On the CPU, trains two copies of a model by turns, one on the fused attention and one on the
/// plain formulas, and keeps the fastest step of each. On a GPU, measures the parts of a step and
/// then a row of whole ones.
TrainRow measure_training(const train::RunConfig& config, const data::Dataset& images, int rounds);

/// Floating-point operations of the matrix products of a step: forward and, twice that, backward.
double matrix_operations(const nn::ViTConfig& model, std::int64_t images);

}  // namespace sape2::cli
