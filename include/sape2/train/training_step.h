#pragma once

#include "sape2/train/adam.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/flat_parameters.h"
#include "sape2/train/recipe.h"
#include "sape2/train/weight_average.h"

#include <cstdint>
#include <optional>

namespace sape2::train {

/// Seconds spent in the parts of a step, summed over steps.
struct PhaseSeconds {
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
};

/// A model in training: its weights, the optimiser's state and the average of weights.
class TrainingStep {
 public:
  /// `model` must be on its device already and outlive this object.
  TrainingStep(nn::ViT& model, const Recipe& recipe, uint64_t seed);

  /// Both 0-dim and on the device, so that nothing waits for a GPU.
  struct Outcome {
    at::Tensor loss;
    at::Tensor gradient_norm;
  };

  /// Forward, backward and update. `step` counts from 0 over the whole training and, with the seed,
  /// decides what dropout and stochastic depth draw.
  Outcome run(const Batch& batch, double learning_rate, int64_t step);

  /// Everything that changes from step to step, by name: weights, Adam's mean and square, the
  /// average. Changing the tensors changes this object, once restored() is called.
  io::NamedTensors state() const;
  void restored(int64_t steps_done);

  /// What is evaluated and saved: the average where there is one.
  io::NamedTensors weights_to_keep() const;
  bool averages() const { return average_.has_value(); }

  /// Adds up seconds from now on; waits for the GPU at each part.
  void measure(PhaseSeconds* seconds) { seconds_ = seconds; }

 private:
  at::Tensor accumulate_gradients(const Batch& batch);
  double elapsed();

  nn::ViT& model_;
  Recipe recipe_;
  uint64_t seed_;
  FlatParameters parameters_;
  Adam adam_;
  std::optional<WeightAverage> average_;
  PhaseSeconds* seconds_ = nullptr;
  double mark_ = 0;
};

}  // namespace sape2::train
