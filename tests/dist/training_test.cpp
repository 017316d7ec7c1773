// Trains models of every encoding with 1, 2 and 4 processes.
#include "sape2/data/dataset.h"
#include "sape2/io/crc32c.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/training_step.h"

#include "dist/ranks.h"
#include "nn/support.h"
#include "train/own_part.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::train::test {
namespace {

using dist::test::Json;

constexpr int64_t kSteps = 20, kImages = 48, kTestImages = 10;

// All that the loader can do to a batch, and all that a step can do to gradients.
RunConfig run_of(const std::string& encoding) {
  RunConfig config = tiny_run();
  config.model.encoding = nn::EncodingSpec::parse(encoding);
  config.model.vit.mlp_dropout = 0;  // drawn by each process for itself
  Recipe& recipe = config.recipe;
  recipe.batch_size = 13;  // no number of processes divides it
  recipe.passes = 2;
  recipe.learning_rate = 1e-3;
  recipe.crop_padding = 1;
  recipe.flip = true;
  recipe.rand_augment_operations = 1;
  recipe.erase_probability = 0.3;
  recipe.mixup_alpha = 0.8;
  recipe.cutmix_alpha = 1;
  recipe.label_smoothing = 0.1;
  return config;
}

uint32_t checksum(const at::Tensor& tensor) {
  return io::crc32c({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()});
}

Json trained(const RunConfig& config, dist::Group* group) {
  LoaderSource source(corners(kImages, 1), config, own_part(group));
  nn::ViT model(config.model, {.seed = config.seed});
  TrainingStep training(model, config.recipe, config.seed, group);
  Json losses, norms;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t steps = source.steps_per_epoch();
    const auto outcome =
        training.run(source.batch(step / steps, step % steps), config.recipe.learning_rate, step);
    losses.push_back(outcome.loss());
    norms.push_back(outcome.gradient_norm());
  }
  nn::ViT averaged(config.model);
  copy_weights(training.weights_to_keep(), averaged);
  const Evaluation test = evaluate(averaged, corners(kTestImages, 2), {.group = group});
  return {{"losses", losses},
          {"norms", norms},
          {"checksum", checksum(training.flat_state().front())},
          {"images", test.images},
          {"test_loss", test.loss},
          {"confusion", test.confusion.sum().item<int64_t>()}};
}

const dist::test::NamedWork every_encoding("every encoding", [](dist::Group* group) {
  Json all;
  std::vector<std::string> encodings = nn::testing::all_encodings();
  encodings.emplace_back("sape2-k+ape");
  for (const std::string& encoding : encodings) all[encoding] = trained(run_of(encoding), group);
  return all;
});

TEST(DistributedTraining, FollowsOneProcessForEveryEncoding) {
  const Json alone = every_encoding.done_by(1).front();
  ASSERT_TRUE(alone.is_object());
  ASSERT_GT(alone.size(), 10u);
  for (const int processes : {2, 4}) {
    const auto together = every_encoding.done_by(processes);
    for (const auto& [encoding, one] : alone.items()) {
      SCOPED_TRACE(encoding + " with " + std::to_string(processes) + " processes");
      const Json& lead = together.front().at(encoding);
      double farthest = 0, farthest_norm = 0;
      for (std::size_t step = 0; step < kSteps; ++step) {
        const auto off = [&](const char* key) {
          return std::abs(lead.at(key).at(step).get<double>() - one.at(key).at(step).get<double>());
        };
        farthest = std::max(farthest, off("losses"));
        farthest_norm = std::max(farthest_norm, off("norms"));
      }
      EXPECT_LT(farthest, 1e-5);
      EXPECT_LT(farthest_norm, 1e-3);
      EXPECT_NE(one.at("losses").front(), one.at("losses").back());
      EXPECT_EQ(lead.at("images"), one.at("images"));
      EXPECT_EQ(lead.at("confusion"), kTestImages);
      EXPECT_NEAR(lead.at("test_loss").get<double>(), one.at("test_loss").get<double>(), 1e-5);
      for (const Json& rank : together) EXPECT_EQ(rank.at(encoding), lead);
    }
  }
}

}  // namespace
}  // namespace sape2::train::test
