#include "support/gpu.h"

#include "sape2/data/shapes.h"
#include "sape2/dist/group.h"
#include "sape2/dist/team.h"
#include "sape2/nn/vit.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/run.h"
#include "sape2/train/training_step.h"

#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::train::test {
namespace {

RunConfig run_without_chance() {
  RunConfig config = tiny_run();
  config.device = "cuda";
  config.model.vit.mlp_dropout = 0;
  config.model.vit.stochastic_depth = 0;
  return config;
}

std::vector<double> losses(BatchSource& source, const RunConfig& config, dist::Group* group) {
  constexpr int64_t kSteps = 12;  // some before the step is recorded, some after
  nn::ViT model(config.model, {.seed = config.seed});
  model.to(at::kCUDA);
  TrainingStep training(model, config.recipe, config.seed, group);
  std::vector<double> found;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t steps = source.steps_per_epoch();
    Batch batch = source.batch(step / steps, step % steps);
    batch.images = batch.images.to(at::kCUDA);
    batch.targets = batch.targets.to(at::kCUDA);
    found.push_back(training.run(batch, 1e-3, step).loss());
  }
  return found;
}

std::vector<double> losses_on_corners(dist::Group* group) {
  const RunConfig config = run_without_chance();
  ShuffledSource source(corners(160, 1), config.recipe.batch_size, config.seed);
  return losses(source, config, group);
}

// Of other numbers of counted pixels from step to step.
std::vector<double> losses_on_masks(dist::Group* group) {
  data::Dataset images = data::with_masks(data::make_shapes({.count = 160, .image_size = 16}));
  for (int64_t i = 0; i < images.size(); ++i) {
    images.masks[i].narrow(0, 0, i % 16).fill_(data::kNotCounted);
  }
  RunConfig config = run_without_chance();
  config.model.task = "segmentation";
  fit_to(config.model, images, config.recipe);
  LoaderSource source(images, config);
  return losses(source, config, group);
}

// NCCL with a team of one: sums inside the recorded step change nothing.
TEST(NcclTraining, OneProcessIsRecordedWithItsSums) {
  SAPE2_NEEDS_GPU();
  const dist::Place place{.address = "127.0.0.1", .port = 29517};
  const auto team = dist::Team::join(place, {}, dist::Loss::ends_all);
  {
    dist::Group group(*team, at::kCUDA);
    if (group.library() != "nccl") GTEST_SKIP() << "this build has no NCCL";
    EXPECT_EQ(losses_on_corners(&group), losses_on_corners(nullptr));
    EXPECT_EQ(losses_on_masks(&group), losses_on_masks(nullptr));
    team->leave();
  }
}

}  // namespace
}  // namespace sape2::train::test
