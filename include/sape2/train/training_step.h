#pragma once

#include "sape2/train/adam.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/flat_parameters.h"
#include "sape2/train/recipe.h"
#include "sape2/train/task.h"
#include "sape2/train/weight_average.h"

#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace sape2::train {

class StepRunner;

/// Seconds spent in the parts of a step, summed over steps.
struct PhaseSeconds {
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
};

/// A model in training: its weights, the optimiser's state and the average of weights. On an NVIDIA
/// GPU the whole step is recorded as a CUDA graph after a few runs.
class TrainingStep {
 public:
  /// `model` must be on its device already and outlive this object. Its task has the loss.
  TrainingStep(nn::ViT& model, const Recipe& recipe, uint64_t seed);
  ~TrainingStep();

  /// What a step leaves: `[loss, norm of the gradient]`, float32 on the device, so that nothing
  /// waits for a GPU.
  struct Outcome {
    at::Tensor numbers;

    double loss() const;
    double gradient_norm() const;
  };

  /// Forward, backward and update. `step` counts from 0 over the whole training and, with the seed,
  /// decides what dropout and stochastic depth draw.
  Outcome run(const Batch& batch, double learning_rate, int64_t step);

  /// Everything that changes from step to step, by name: weights, Adam's mean and square, the
  /// average. Changing the tensors changes this object, once restored() is called.
  io::NamedTensors state() const;
  void restored();

  /// A copy of the state in host memory, which later steps leave alone.
  io::NamedTensors snapshot() const;

  /// What is evaluated and saved: the average where there is one.
  io::NamedTensors weights_to_keep() const;
  bool averages() const { return average_.has_value(); }

  /// Adds up seconds; to be called before the first step. Waits for the GPU after each step.
  void measure(PhaseSeconds* seconds) { seconds_ = seconds; }

 private:
  // What changes from step to step, where a recorded step finds it.
  struct Inputs {
    at::Tensor images, targets;
    at::Tensor depth_factors;  // undefined: no stochastic depth
    at::Tensor numbers;        // the optimiser's
  };

  template <typename Map>
  io::NamedTensors named_state(const Map& map) const;
  void place(at::Tensor& home, const at::Tensor& value);
  void compute();
  void mark(int place);
  at::Tensor accumulate_gradients();
  void add_seconds();

  nn::ViT& model_;
  Recipe recipe_;
  Loss loss_;
  uint64_t seed_;
  FlatParameters parameters_;
  std::optional<WeightAverage> average_;
  Adam adam_;
  Inputs inputs_;
  at::Tensor outcome_;
  std::unique_ptr<StepRunner> runner_;
  std::optional<c10::Stream> side_stream_;  // on a GPU, for gradients of weights
  PhaseSeconds* seconds_ = nullptr;
};

}  // namespace sape2::train
