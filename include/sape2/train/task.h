#pragma once

#include "sape2/data/dataset.h"
#include "sape2/nn/task.h"
#include "sape2/train/evaluate.h"
#include "sape2/train/figures.h"
#include "sape2/train/recipe.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace sape2::train {

/// What a model makes of a data set.
struct Measured {
  int64_t images = 0;
  double loss = 0;  ///< mean cross-entropy, nothing smoothed
  Figures figures;
  /// Counts `[classes, classes]` int64 of images or pixels: row the true class, column the one
  /// predicted.
  at::Tensor confusion;
};

/// What evaluate() gives, as a task's figures.
Measured measured(const Evaluation& evaluation);

/// What a loss is the mean over: the batch of all processes together.
struct WholeBatch {
  int64_t images = 0;
  const at::Tensor& counted;  ///< what Task::counted() gives for all its targets
};

/// The part that some images of a batch have in the loss of the whole batch; all parts sum to its
/// mean. `targets` are theirs.
using Loss = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets,
                                      const WholeBatch& batch)>;

/// What a model is trained for: what it learns from, by which loss, and how it is measured. One
/// file in src/train/tasks and one line in its list, and one in src/nn/definitions/tasks.cpp.
class Task {
 public:
  virtual ~Task() = default;

  virtual const nn::TaskDefinition& definition() const = 0;

  /// What data sets have to say of their images.
  virtual data::Target target() const = 0;

  /// What is measured; the first decides which model is best.
  virtual const std::vector<FigureDefinition>& figures() const = 0;

  /// Throws Error with one sentence for values of a recipe that mean nothing to this task.
  virtual void check(const Recipe& recipe) const = 0;

  /// How many entries of some targets the loss is the mean over: a number, int64, on their device.
  /// Undefined where it is the mean over images.
  virtual at::Tensor counted(const at::Tensor& /*targets*/) const { return {}; }

  /// Made of LibTorch's operations on the outputs' device: it is part of a recorded step.
  virtual Loss loss(const Recipe& recipe) const = 0;

  /// See evaluate() for what it throws.
  virtual Measured measure(nn::ViT& model, const data::Dataset& dataset,
                           const EvaluateOptions& options = {}) const = 0;
};

/// The task of that name; throws Error with the nearest valid name otherwise.
const Task& task_named(std::string_view name);

/// What tables call the figure of that key, whichever task has it; the key itself if none has.
std::string figure_name(const std::string& key);

/// The task of a model.
const Task& task_of(const nn::ViT& model);

}  // namespace sape2::train
