#include "cli/bench/train_measure.h"

#include "sape2/nn/vit.h"
#include "sape2/ops/ops.h"
#include "sape2/train/device.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/schedule.h"
#include "sape2/train/training_step.h"

#include "cli/bench/stopwatch.h"

#include <ATen/ATen.h>

#include <limits>
#include <memory>
#include <optional>

namespace sape2::cli {
namespace {

// A model in training on one of the two paths.
class Trainee {
 public:
  Trainee(const train::RunConfig& config, bool reference)
      : reference_(reference),
        model_(std::make_shared<nn::ViT>(config.model, nn::Initialisation{.seed = config.seed})),
        training_((model_->to(train::device_named(config.device)), *model_), config.recipe,
                  config.seed) {
    training_.measure(&seconds_);
  }

  // Milliseconds of one step, the data aside.
  StepTime step(const train::Batch& batch, double learning_rate, std::int64_t number) {
    std::optional<ops::ReferenceGuard> guard;
    if (reference_) guard.emplace();
    seconds_ = {};
    training_.run(batch, learning_rate, number);
    return {.data = 0,
            .forward = 1000 * seconds_.forward,
            .backward = 1000 * seconds_.backward,
            .optimizer = 1000 * seconds_.optimizer};
  }

 private:
  bool reference_;
  std::shared_ptr<nn::ViT> model_;
  train::TrainingStep training_;
  train::PhaseSeconds seconds_;
};

void keep_faster(StepTime& best, const StepTime& step) {
  if (step.total() < best.total()) best = step;
}

}  // namespace

TrainRow measure_training(const train::RunConfig& config, const data::Dataset& images, int rounds) {
  auto options = train::loader_options(config.recipe, config.seed, images.size(),
                                       train::device_named(config.device));
  options.prefetch = 0;
  data::Loader loader(images, options);
  Trainee fused(config, false), reference(config, true);
  const double rate = config.recipe.learning_rate;

  TrainRow row{.batch_size = options.batch_size};
  row.fused.forward = row.reference.forward = std::numeric_limits<double>::infinity();
  double data = std::numeric_limits<double>::infinity();
  std::int64_t epoch = 0;
  for (int round = 0; round <= rounds; ++round) {
    train::Batch batch;
    const auto make_batch = [&] {
      auto next = loader.next();
      if (!next) {
        loader.start(++epoch);
        next = loader.next();
      }
      batch = {std::move(next->images), std::move(next->targets)};
    };
    const double data_time = milliseconds_of(make_batch);
    const StepTime fused_time = fused.step(batch, rate, round);
    const StepTime reference_time = reference.step(batch, rate, round);
    if (round == 0) continue;  // warms up: threads, caches, memory
    data = std::min(data, data_time);
    keep_faster(row.fused, fused_time);
    keep_faster(row.reference, reference_time);
  }
  row.fused.data = row.reference.data = data;
  return row;
}

}  // namespace sape2::cli
