#pragma once

#include "sape2/dist/group.h"
#include "sape2/train/adam.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/flat_parameters.h"
#include "sape2/train/recipe.h"
#include "sape2/train/task.h"
#include "sape2/train/weight_average.h"

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace sape2::train {

class GradientExchange;
class StepRunner;

/// Seconds spent in the parts of a step, summed over steps. Sums of gradients over processes belong
/// to the backward pass.
struct PhaseSeconds {
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
};

/// A model in training: its weights, the optimiser's state and the average of weights. On an NVIDIA
/// GPU the whole step is recorded as a CUDA graph after a few runs.
///
/// With a group, each process works on its part of a batch, and gradients and loss are added up
/// over all of them during the backward pass: the weights stay the same bits on every rank.
class TrainingStep {
 public:
  /// `model` must be on its device already and outlive this object, and so must `group`. The
  /// model's task has the loss.
  TrainingStep(nn::ViT& model, const Recipe& recipe, uint64_t seed, dist::Group* group = nullptr);
  ~TrainingStep();

  /// What a step leaves: `[loss, norm of the gradient, votes]`, float32 on the device, so that
  /// nothing waits for a GPU.
  struct Outcome {
    at::Tensor numbers;

    double loss() const;
    double gradient_norm() const;
    /// Processes that voted for an end before this step.
    bool stops() const;
  };

  /// With a group: whether this process wants the training to end, from the next step on.
  void vote_to_stop(bool stop) { votes_to_stop_ = stop; }

  /// Forward, backward and update. `step` counts from 0 over the whole training and, with the seed,
  /// decides what dropout and stochastic depth draw.
  Outcome run(const Batch& batch, double learning_rate, int64_t step);

  /// With a group, for measurements, before the first step: sends gradients after the backward pass
  /// instead of beside it.
  void send_late() { sends_late_ = true; }

  /// Everything that changes from step to step, by name: weights, Adam's mean and square, the
  /// average. Changing the tensors changes this object, once restored() is called.
  io::NamedTensors state() const;
  void restored();

  /// The same as whole blocks, for those who copy all of it; weights first.
  std::vector<at::Tensor> flat_state() const;

  /// A copy of the state in host memory, which later steps leave alone.
  io::NamedTensors snapshot() const;

  /// What is evaluated and saved: the average if there is one.
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
    at::Tensor vote;           // undefined: no group
  };

  template <typename Map>
  io::NamedTensors named_state(const Map& map) const;
  void place(at::Tensor& home, const at::Tensor& value);
  void compute();
  std::unique_ptr<StepRunner> new_runner() const;
  void mark(int place);
  at::Tensor accumulate_gradients();
  dist::Group::Sum begin_count();
  void backward(const at::Tensor& loss, const at::Tensor& total, bool last,
                const std::function<void()>& join);
  void add_seconds();

  nn::ViT& model_;
  Recipe recipe_;
  const Task& task_;
  Loss loss_;
  uint64_t seed_;
  FlatParameters parameters_;
  std::optional<WeightAverage> average_;
  Adam adam_;
  dist::Group* group_;
  std::unique_ptr<GradientExchange> exchange_;
  bool votes_to_stop_ = false;
  bool sends_late_ = false;
  int64_t whole_batch_ = 0;  // images of all processes
  Inputs inputs_;
  at::Tensor outcome_;
  at::Tensor shared_;   // [loss, votes], summed over the group
  at::Tensor counted_;  // what the loss is the mean over, summed over the group
  std::unique_ptr<StepRunner> runner_;
  std::optional<c10::Stream> side_stream_;  // on a GPU, for gradients of weights
  PhaseSeconds* seconds_ = nullptr;
};

}  // namespace sape2::train
