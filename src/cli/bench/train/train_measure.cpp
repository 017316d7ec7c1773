#include "cli/bench/train/train_measure.h"

#include "sape2/nn/vit.h"
#include "sape2/ops/ops.h"
#include "sape2/train/device.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/training_step.h"

#include "cli/bench/meters/gpu_memory.h"
#include "cli/bench/meters/stopwatch.h"

#include <ATen/ATen.h>

#include <limits>
#include <memory>

namespace sape2::cli {
namespace {

constexpr int kStepsInARow = 100;  // of a GPU
constexpr std::int64_t kCeilingSide = 8192;

// A model in training on one of the two paths.
class Trainee {
 public:
  Trainee(const train::RunConfig& config, bool reference, bool in_parts)
      : reference_(reference),
        model_(std::make_shared<nn::ViT>(config.model, nn::Initialisation{.seed = config.seed})),
        training_((model_->to(train::device_named(config.device)), *model_), config.recipe,
                  config.seed) {
    if (in_parts) training_.measure(&seconds_);
  }

  // Milliseconds of one step, the data aside.
  StepTime step(const train::Batch& batch, double learning_rate, std::int64_t number) {
    seconds_ = {};
    run(batch, learning_rate, number);
    return {.data = 0,
            .forward = 1000 * seconds_.forward,
            .backward = 1000 * seconds_.backward,
            .optimizer = 1000 * seconds_.optimizer};
  }

  at::Tensor run(const train::Batch& batch, double learning_rate, std::int64_t number) {
    std::optional<ops::ReferenceGuard> guard;
    if (reference_) guard.emplace();
    return training_.run(batch, learning_rate, number).numbers;
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

StepTime endless() {
  StepTime time;
  time.forward = std::numeric_limits<double>::infinity();
  return time;
}

// TFLOP/s of a large matrix product in the type that training computes in.
double matrix_ceiling(const train::RunConfig& config) {
  const auto type = config.recipe.precision == "bfloat16" ? at::kBFloat16 : at::kFloat;
  const auto options = at::device(train::device_named(config.device)).dtype(type);
  const at::Tensor a = at::randn({kCeilingSide, kCeilingSide}, options);
  at::Tensor out = at::mm(a, a);
  constexpr int kProducts = 10;
  const auto products = [&] {
    for (int i = 0; i < kProducts; ++i) at::mm_out(out, a, a);
    out.select(0, 0).select(0, 0).item<float>();
  };
  products();
  const double side = kCeilingSide;
  return 2 * side * side * side * kProducts / milliseconds_of(products) / 1e9;
}

GpuFigures measure_row(const train::RunConfig& config, const data::Dataset& images) {
  reset_peak_gpu_memory();
  GpuFigures figures;
  train::LoaderSource source(images, config);
  Trainee trainee(config, false, false);
  std::int64_t number = 0;
  const auto steps = [&](int count) {
    at::Tensor outcome;
    for (int i = 0; i < count; ++i, ++number) {
      const std::int64_t epoch = number / source.steps_per_epoch();
      outcome = trainee.run(source.batch(epoch, number % source.steps_per_epoch()),
                            config.recipe.learning_rate, number);
    }
    outcome.cpu();
  };
  steps(kWarmUpSteps);
  figures.step = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double row = milliseconds_of([&] { steps(kStepsInARow); });
    figures.step = std::min(figures.step, row / kStepsInARow);
  }
  figures.peak_bytes = peak_gpu_memory();
  const double work = matrix_operations(config.model.vit, source.images_per_step());
  figures.teraflops = work / figures.step / 1e9;
  figures.ceiling = matrix_ceiling(config);
  return figures;
}

}  // namespace

double matrix_operations(const nn::ViTConfig& model, std::int64_t images) {
  const auto width = static_cast<double>(model.width),
             hidden = static_cast<double>(model.mlp_width());
  const auto patches = static_cast<double>(model.rows() * model.cols());
  const double tokens = patches + static_cast<double>(model.prefix());
  const double layer =
      2 * tokens * (4 * width * width + 2 * width * hidden) + 4 * tokens * tokens * width;
  const auto pixels =
      static_cast<double>(model.channels * model.patch_size.height * model.patch_size.width);
  const double embedding = 2 * patches * pixels * width;
  return 3 * static_cast<double>(images) * (static_cast<double>(model.depth) * layer + embedding);
}

TrainRow measure_training(const train::RunConfig& config, const data::Dataset& images, int rounds) {
  const c10::Device device = train::device_named(config.device);
  auto options = train::loader_options(config.recipe, config.seed, images.size(), device);
  options.prefetch = 0;
  data::Loader loader(images, options);
  Trainee fused(config, false, true);
  std::optional<Trainee> reference;
  if (device.is_cpu()) reference.emplace(config, true, true);
  const double rate = config.recipe.learning_rate;
  const int warm_ups = device.is_cpu() ? 1 : kWarmUpSteps;

  TrainRow row{.batch_size = options.batch_size, .fused = endless()};
  if (reference) row.reference = endless();
  double data = std::numeric_limits<double>::infinity();
  std::int64_t epoch = 0;
  for (int round = 0; round < warm_ups + rounds; ++round) {
    train::Batch batch;
    const auto make_batch = [&] {
      auto next = loader.next();
      if (!next) {
        loader.start(++epoch);
        next = loader.next();
      }
      batch = {std::move(next->images), std::move(next->targets)};
      if (!device.is_cpu()) batch.targets.select(0, 0).select(0, 0).item<float>();
    };
    const double data_time = milliseconds_of(make_batch);
    const StepTime fused_time = fused.step(batch, rate, round);
    const StepTime reference_time = reference ? reference->step(batch, rate, round) : StepTime{};
    if (round < warm_ups) continue;
    data = std::min(data, data_time);
    keep_faster(row.fused, fused_time);
    if (reference) keep_faster(*row.reference, reference_time);
  }
  row.fused.data = data;
  if (reference) row.reference->data = data;
  if (device.is_cuda()) row.gpu = measure_row(config, images);
  return row;
}

}  // namespace sape2::cli
