// What training promises on a GPU. Where there is none, these tests say so and are skipped.
#include "support/gpu.h"

#include "sape2/data/shapes.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/run.h"
#include "sape2/train/schedule.h"
#include "sape2/train/trainer.h"
#include "sape2/train/training_step.h"

#include "support/scratch_folder.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

data::Dataset some_shapes(int64_t count, const std::string& task = nn::kClassification) {
  data::Shapes shapes = data::make_shapes({.count = count});
  if (task == nn::kClassification) return std::move(shapes.dataset);
  data::Dataset masked = data::with_masks(std::move(shapes));
  masked.masks.narrow(1, 12, 3).fill_(data::kNotCounted);
  return masked;
}

/// A small model with everything a recipe can ask for, but dropout: the devices draw it
/// differently.
RunConfig rich_run(const std::string& encoding, const std::string& device) {
  RunConfig config;
  config.device = device;
  config.seed = 5;
  config.data.name = "shapes";
  config.model.vit = nn::preset("vit-micro").config;
  config.model.encoding = nn::EncodingSpec::parse(encoding);
  Recipe& recipe = config.recipe;
  recipe.epochs = 4;
  recipe.batch_size = 32;
  recipe.warmup_epochs = 1;
  recipe.clip_norm = 1;
  recipe.ema_decay = 0.99;
  recipe.label_smoothing = 0.1;
  recipe.stochastic_depth = 0.1;
  recipe.crop_padding = 4;
  recipe.flip = true;
  recipe.auto_augment = true;
  recipe.mixup_alpha = recipe.cutmix_alpha = 1;
  recipe.erase_probability = 0.25;
  recipe.log_steps = 3;
  fit_to(config.model, some_shapes(1), recipe);
  return config;
}

/// Few images, as they are: the loss falls fast, so that every gradient soon tells on it.
RunConfig steep_run(const std::string& encoding, const std::string& device) {
  RunConfig config = rich_run(encoding, device);
  Recipe& recipe = config.recipe;
  recipe.epochs = 27;
  recipe.warmup_epochs = 2;
  recipe.crop_padding = 0;
  recipe.flip = recipe.auto_augment = false;
  recipe.mixup_alpha = recipe.cutmix_alpha = recipe.erase_probability = 0;
  return config;
}

/// The same with masks, and the augmentations that they have.
RunConfig masked_run(const std::string& encoding, const std::string& device) {
  RunConfig config = steep_run(encoding, device);
  config.model.task = "segmentation";
  Recipe& recipe = config.recipe;
  recipe.crop_padding = 2;
  recipe.flip = true;
  recipe.scale_low = 0.7;
  recipe.scale_high = 1.4;
  recipe.colour_jitter = 0.3;
  fit_to(config.model, some_shapes(1, config.model.task), recipe);
  return config;
}

class Follower {
 public:
  explicit Follower(const RunConfig& config, int64_t images = 512)
      : source_(some_shapes(images, config.model.task), config),
        schedule_(config.recipe, source_.steps_per_epoch()),
        model_(std::make_shared<nn::ViT>(config.model, nn::Initialisation{.seed = config.seed})),
        training_((model_->to(c10::Device(config.device)), *model_), config.recipe, config.seed) {}

  double loss_of(int64_t step) {
    const int64_t steps = source_.steps_per_epoch();
    const Batch batch = source_.batch(step / steps, step % steps);
    return training_.run(batch, schedule_.learning_rate(step), step).loss();
  }

  void take_over(const Follower& other) {
    const at::NoGradGuard no_grad;
    io::NamedTensors mine = training_.state();
    for (const auto& [name, tensor] : other.training_.state()) mine.at(name).copy_(tensor);
    training_.restored();
  }

 private:
  LoaderSource source_;
  Schedule schedule_;
  std::shared_ptr<nn::ViT> model_;
  TrainingStep training_;
};

class GpuCurve : public ::testing::TestWithParam<const char*> {};

// Trains on both devices from one state. `fall`: by how much the loss came down meanwhile.
double largest_difference(Follower& cpu, Follower& gpu, double& fall) {
  constexpr int64_t kBefore = 4, kSteps = 50;
  for (int64_t step = 0; step < kBefore; ++step) cpu.loss_of(step);
  gpu.take_over(cpu);
  double largest = 0, first = 0;
  for (int64_t step = kBefore; step < kBefore + kSteps; ++step) {
    const double loss = cpu.loss_of(step);
    if (step == kBefore) first = loss;
    fall = first - loss;
    largest = std::max(largest, std::abs(loss - gpu.loss_of(step)));
  }
  return largest;
}

TEST_P(GpuCurve, FollowsTheCpuFor50Steps) {
  SAPE2_NEEDS_GPU();
  Follower cpu(rich_run(GetParam(), "cpu")), gpu(rich_run(GetParam(), "cuda"));
  double fall = 0;
  const double largest = largest_difference(cpu, gpu, fall);
  std::cout << GetParam() << ": losses differ by at most " << largest << "\n";
  EXPECT_LT(largest, 1e-3);
}

TEST_P(GpuCurve, FollowsTheCpuWhereTheLossFallsFast) {
  SAPE2_NEEDS_GPU();
  constexpr int64_t kImages = 64;
  Follower cpu(steep_run(GetParam(), "cpu"), kImages), gpu(steep_run(GetParam(), "cuda"), kImages);
  double fall = 0;
  const double largest = largest_difference(cpu, gpu, fall);
  std::cout << GetParam() << ": the loss fell by " << fall << ", losses differ by at most "
            << largest << "\n";
  EXPECT_GT(fall, 0.2);  // otherwise this test would say little
  EXPECT_LT(largest, 1e-3);
}

TEST_P(GpuCurve, FollowsTheCpuOnMasks) {
  SAPE2_NEEDS_GPU();
  constexpr int64_t kImages = 64;
  Follower cpu(masked_run(GetParam(), "cpu"), kImages),
      gpu(masked_run(GetParam(), "cuda"), kImages);
  double fall = 0;
  const double largest = largest_difference(cpu, gpu, fall);
  std::cout << GetParam() << ": losses on masks differ by at most " << largest << "\n";
  EXPECT_LT(largest, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Encodings, GpuCurve,
                         ::testing::Values("none", "ape", "rpe", "rope", "rope2d", "rope2d-mixed",
                                           "cope+ape", "sape2-k+ape", "sape2-rel-k",
                                           "sape2-rel-qk[gates=open]"));

RunSummary trained(const fs::path& path, const RunConfig& config, int64_t stop_after = -1) {
  LoaderSource source(some_shapes(320), config);
  const data::Dataset test = some_shapes(64);
  RunFolder folder =
      fs::exists(path / "config.json") ? RunFolder::open(path) : RunFolder::create(path, config);
  Observer silent;
  Trainer trainer(std::move(folder), source, test, silent);
  int64_t done = 0;
  return trainer.run([&] { return ++done == stop_after; });
}

class GpuRun : public ::testing::TestWithParam<const char*> {
 protected:
  // With dropout and pieces as well: on one device they must not matter.
  RunConfig config() const {
    RunConfig config = rich_run("sape2-rel-k", "cuda");
    config.recipe.precision = GetParam();
    config.recipe.accumulation = 2;
    config.model.vit.mlp_dropout = 0.1;
    return config;
  }
  void expect_same(const fs::path& one, const fs::path& other) const {
    for (const char* name : {"last.safetensors", "best.safetensors"})
      EXPECT_TRUE(file_bytes(one / name) == file_bytes(other / name)) << name << " differs";
  }
};

TEST_P(GpuRun, IsTheSameTwice) {
  SAPE2_NEEDS_GPU();
  const ScratchFolder scratch;
  trained(scratch / "one", config());
  at::manual_seed(99);  // must not matter
  trained(scratch / "two", config());
  expect_same(scratch / "one", scratch / "two");
}

TEST_P(GpuRun, GoesOnExactlyAfterACut) {
  SAPE2_NEEDS_GPU();
  const ScratchFolder scratch;
  trained(scratch / "whole", config());
  for (const int64_t stop : {1, 7, 23}) {
    const fs::path run = scratch / ("cut" + std::to_string(stop));
    EXPECT_FALSE(trained(run, config(), stop).finished);
    EXPECT_TRUE(trained(run, config()).finished);
    expect_same(scratch / "whole", run);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, GpuRun, ::testing::Values("float32", "bfloat16"));

TEST(GpuAdam, FollowsTheCpu) {
  SAPE2_NEEDS_GPU();
  constexpr int64_t kSize = 100'000, kDecayed = 60'000, kRounded = 80'000;
  for (const bool decoupled : {false, true}) {
    const Adam::Options options{.weight_decay = 0.1, .decoupled = decoupled};
    const at::Tensor start = at::rand({kSize});
    const auto trained_on = [&](at::Device device) {
      at::Tensor weights = start.to(device).clone(), average = weights.clone();
      at::Tensor copy = weights.narrow(0, 0, kRounded).to(at::kBFloat16);
      Adam adam(weights, kDecayed, options, {.average = average, .copy = copy});
      for (int step = 1; step <= 10; ++step) {
        const at::Tensor gradients = (start * (step + 3.7)).sin().to(device);
        const at::Tensor norm = clipped_norm(gradients, 50);
        adam.step(gradients, norm.select(0, 1), adam.numbers(step, 1e-2, 0.3).to(device));
      }
      EXPECT_TRUE(at::equal(copy, weights.narrow(0, 0, kRounded).to(at::kBFloat16)));
      return at::stack({weights, average}).cpu();
    };
    const at::Tensor difference = trained_on(at::kCPU) - trained_on(at::kCUDA);
    EXPECT_LT(difference.abs().max().item<double>(), 2e-6);
  }
}

}  // namespace
}  // namespace sape2::train::test
