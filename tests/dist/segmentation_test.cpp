// Trains on masks with 1, 2, 3 and 4 processes, whose parts of a batch have other numbers of
// counted pixels, or none.
#include "sape2/train/segmentation.h"

#include "sape2/data/shapes.h"
#include "sape2/io/crc32c.h"
#include "sape2/nn/vit.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/run.h"
#include "sape2/train/task.h"
#include "sape2/train/training_step.h"

#include "dist/ranks.h"
#include "train/own_part.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace sape2::train::test {
namespace {

using dist::test::Json;

constexpr int64_t kSteps = 20, kSide = 16;

// Every fourth image has counted pixels, in some of its rows.
data::Dataset shapes(data::Split split, int64_t count) {
  data::Dataset images =
      data::with_masks(data::make_shapes({.split = split, .count = count, .image_size = kSide}));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t rows = i % 4 == 0 ? i % (kSide - 3) : kSide;
    images.masks[i].narrow(0, 0, rows).fill_(data::kNotCounted);
  }
  return images;
}

// All that the loader can do to masks, and all that a step can do to gradients.
RunConfig masked_run(const data::Dataset& images) {
  RunConfig config = tiny_run();
  config.model.task = "segmentation";
  config.model.vit.patch_size = {4, 4};
  Recipe& recipe = config.recipe;
  recipe.batch_size = 13;  // no number of processes divides it
  recipe.learning_rate = 1e-3;
  recipe.crop_padding = 1;
  recipe.flip = true;
  recipe.scale_low = 0.8;
  recipe.scale_high = 1.25;
  recipe.colour_jitter = 0.2;
  recipe.label_smoothing = 0.1;
  recipe.stochastic_depth = 0.2;
  fit_to(config.model, images, recipe);
  return config;
}

Json said_of(const Measured& measured) {
  Json figures;
  for (const auto& [key, value] : measured.figures) figures[key] = value;
  const at::Tensor counts = measured.confusion.flatten().contiguous();
  return {{"images", measured.images},
          {"loss", measured.loss},
          {"figures", figures},
          {"confusion", std::vector<int64_t>(counts.data_ptr<int64_t>(),
                                             counts.data_ptr<int64_t>() + counts.numel())}};
}

const dist::test::NamedWork masks("masks", [](dist::Group* group) -> Json {
  const data::Dataset images = shapes(data::Split::train, 64);
  const RunConfig config = masked_run(images);
  LoaderSource source(images, config, own_part(group));
  nn::ViT model(config.model, {.seed = config.seed});
  TrainingStep training(model, config.recipe, config.seed, group);
  Json losses, norms, counted;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t steps = source.steps_per_epoch();
    const Batch batch = source.batch(step / steps, step % steps);
    const auto outcome = training.run(batch, config.recipe.learning_rate, step);
    losses.push_back(outcome.loss());
    norms.push_back(outcome.gradient_norm());
    counted.push_back(counted_pixels(batch.targets).item<int64_t>());
  }
  nn::ViT averaged(config.model);
  copy_weights(training.weights_to_keep(), averaged);
  const at::Tensor weights = training.flat_state().front();
  Json tests;
  for (const int64_t count : {11, 3}) {  // 3: some of four processes have no image
    const data::Dataset test = shapes(data::Split::test, count);
    tests.push_back(
        {{"alone", said_of(task_of(model).measure(averaged, test))},
         {"shared", said_of(task_of(model).measure(averaged, test, {.group = group}))}});
  }
  return {{"losses", losses},
          {"norms", norms},
          {"counted", counted},
          {"checksum",
           io::crc32c({static_cast<const std::byte*>(weights.data_ptr()), weights.nbytes()})},
          {"tests", tests}};
});

double farthest(const Json& some, const Json& others) {
  double most = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    most = std::max(most, std::abs(some.at(i).get<double>() - others.at(i).get<double>()));
  }
  return most;
}

// What the test stands on: pixels lie unevenly, and a process may have none where others have some.
void expect_uneven(const std::vector<Json>& together, const Json& alone) {
  int64_t uneven = 0, without = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<int64_t> counts;
    for (const Json& rank : together) counts.push_back(rank.at("counted").at(step));
    const auto [fewest, most] = std::ranges::minmax(counts);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}),
              alone.at("counted").at(step));
    uneven += fewest < most;
    without += fewest == 0 && most > 0;
  }
  EXPECT_GT(uneven, kSteps / 2);
  EXPECT_GT(without, 0);
}

void expect_same_figures(const Json& shared, const Json& alone) {
  EXPECT_EQ(shared.at("images"), alone.at("images"));
  EXPECT_EQ(shared.at("confusion"), alone.at("confusion"));
  EXPECT_NEAR(shared.at("loss").get<double>(), alone.at("loss").get<double>(), 1e-6);
  for (const auto& [key, value] : alone.at("figures").items()) {
    EXPECT_NEAR(shared.at("figures").at(key).get<double>(), value.get<double>(), 1e-12) << key;
  }
}

TEST(DistributedSegmentation, FollowsOneProcess) {
  const Json alone = masks.done_by(1).front();
  ASSERT_TRUE(alone.is_object());
  EXPECT_LT(alone.at("losses").back(), alone.at("losses").front());
  for (const int processes : {2, 3, 4}) {
    SCOPED_TRACE(std::to_string(processes) + " processes");
    const auto together = masks.done_by(processes);
    expect_uneven(together, alone);
    const Json& lead = together.front();
    EXPECT_LT(farthest(lead.at("losses"), alone.at("losses")), 1e-5);
    EXPECT_LT(farthest(lead.at("norms"), alone.at("norms")), 1e-3);
    for (const Json& rank : together) {
      for (const char* key : {"losses", "norms", "checksum", "tests"}) {
        EXPECT_EQ(rank.at(key), lead.at(key)) << key;
      }
    }
    for (std::size_t i = 0; i < lead.at("tests").size(); ++i) {
      const Json& test = lead.at("tests").at(i);
      expect_same_figures(test.at("shared"), test.at("alone"));
      EXPECT_NEAR(test.at("shared").at("loss").get<double>(),
                  alone.at("tests").at(i).at("alone").at("loss").get<double>(), 1e-5);
    }
  }
}

}  // namespace
}  // namespace sape2::train::test
