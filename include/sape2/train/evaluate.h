#pragma once

#include "sape2/base/error.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace sape2::data {
struct Dataset;
}
namespace sape2::dist {
class Group;
}
namespace sape2::nn {
struct ModelConfig;
class ViT;
}  // namespace sape2::nn

namespace sape2::train {

struct Evaluation {
  int64_t images = 0;
  double top1 = 0;  ///< share of images whose class has the largest logit, 0 … 1
  double top5 = 0;  ///< … is among the five largest
  double loss = 0;  ///< mean cross-entropy, nothing smoothed
  /// Counts `[classes, classes]` int64: row the true class, column the one predicted.
  at::Tensor confusion;
};

/// A model whose outputs are no numbers has no accuracy.
class NotFinite : public Error {
 public:
  using Error::Error;
};

struct EvaluateOptions {
  int64_t batch_size = 0;  ///< 0: 256 on a CPU, 2048 on a GPU
  /// Shares the images out over these processes, which must all ask; each gets the whole result.
  dist::Group* group = nullptr;
};

/// Runs a model over a whole data set on the model's device, with the model's own normalisation, at
/// the size the images have. The model's weights are taken as they are: `best.safetensors` and
/// `last.safetensors` of a run with `ema_decay` hold the averaged ones. Throws Error if images
/// or classes do not fit the model, NotFinite if a logit is not a finite number.
Evaluation evaluate(nn::ViT& model, const data::Dataset& dataset,
                    const EvaluateOptions& options = {});

/// Anything that classifies: bytes `[B, C, H, W]` to logits `[B, classes]`.
using Classifier = std::function<at::Tensor(const at::Tensor& bytes)>;

/// The same for whatever computes the logits of a model of that configuration.
Evaluation evaluate(const nn::ModelConfig& config, const Classifier& classify,
                    const data::Dataset& dataset, const EvaluateOptions& options = {});

/// Throws Error with one sentence if a data set is empty or its channels or classes are not the
/// model's.
void check_fit(const nn::ModelConfig& config, const data::Dataset& dataset);

/// Bytes `[B, C, H, W]` as the model takes them: float32, scaled to 0 … 1, normalised.
at::Tensor normalised_images(const nn::ViT& model, const at::Tensor& bytes);

}  // namespace sape2::train
