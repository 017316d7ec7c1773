#include "sape2/nn/vit.h"
#include "sape2/ops/training.h"

#include "train/tasks/tasks.h"

namespace sape2::train {
namespace {

// A class for each image: soft targets, which mixing and smoothing make.
class Classification : public Task {
 public:
  const nn::TaskDefinition& definition() const override {
    return nn::task_definition(nn::kClassification);
  }

  data::Target target() const override { return data::Target::labels; }

  const std::vector<FigureDefinition>& figures() const override {
    static const std::vector<FigureDefinition> all{{"top1", "top-1"}, {"top5", "top-5"}};
    return all;
  }

  void check(const Recipe& recipe) const override {
    for (const char* key : {"scale_low", "scale_high", "colour_jitter"}) {
      refuse_value(recipe, key, *this);
    }
  }

  Loss loss(const Recipe&) const override {
    return [](const at::Tensor& outputs, const at::Tensor& targets, const WholeBatch& batch) {
      const double share = 1 / static_cast<double>(batch.images);
      return ops::soft_cross_entropy(outputs, targets, share);
    };
  }

  Measured measure(nn::ViT& model, const data::Dataset& dataset,
                   const EvaluateOptions& options) const override {
    return measured(evaluate(model, dataset, options));
  }
};

}  // namespace

Measured measured(const Evaluation& evaluation) {
  return {.images = evaluation.images,
          .loss = evaluation.loss,
          .figures = {{"top1", evaluation.top1}, {"top5", evaluation.top5}},
          .confusion = evaluation.confusion};
}

const Task& classification_task() {
  static const Classification task;
  return task;
}

}  // namespace sape2::train
