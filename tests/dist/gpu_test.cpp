#include "support/gpu.h"

#include "sape2/dist/group.h"
#include "sape2/dist/team.h"
#include "sape2/nn/vit.h"
#include "sape2/train/training_step.h"

#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::train::test {
namespace {

std::vector<double> losses(const RunConfig& config, dist::Group* group) {
  constexpr int64_t kSteps = 12;  // some before the step is recorded, some after
  ShuffledSource source(corners(160, 1), config.recipe.batch_size, config.seed);
  nn::ViT model(config.model, {.seed = config.seed});
  model.to(at::kCUDA);
  TrainingStep training(model, config.recipe, config.seed, group);
  std::vector<double> found;
  for (int64_t step = 0; step < kSteps; ++step) {
    Batch batch = source.batch(step / 10, step % 10);
    batch.images = batch.images.to(at::kCUDA);
    batch.targets = batch.targets.to(at::kCUDA);
    found.push_back(training.run(batch, 1e-3, step).loss());
  }
  return found;
}

// NCCL with a team of one: sums inside the recorded step change nothing.
TEST(NcclTraining, OneProcessIsRecordedWithItsSums) {
  SAPE2_NEEDS_GPU();
  const dist::Place place{.address = "127.0.0.1", .port = 29517};
  const auto team = dist::Team::join(place, {}, dist::Loss::ends_all);
  RunConfig config = tiny_run();
  config.model.vit.mlp_dropout = 0;
  config.model.vit.stochastic_depth = 0;
  {
    dist::Group group(*team, at::kCUDA);
    if (group.library() != "nccl") GTEST_SKIP() << "this build has no NCCL";
    EXPECT_EQ(losses(config, &group), losses(config, nullptr));
    team->leave();
  }
}

}  // namespace
}  // namespace sape2::train::test
