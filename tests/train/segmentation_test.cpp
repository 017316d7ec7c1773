#include "sape2/base/error.h"
#include "sape2/data/augment.h"
#include "sape2/data/shapes.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"
#include "sape2/train/run.h"
#include "sape2/train/task.h"
#include "sape2/train/training_step.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::train {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

data::Dataset shapes(data::Split split, int64_t count) {
  return data::with_masks(data::make_shapes({.split = split, .count = count}));
}

RunConfig small_run(const data::Dataset& images) {
  RunConfig config;
  config.model.task = "segmentation";
  config.model.vit.depth = 2;
  config.model.vit.width = 48;
  config.model.vit.heads = 3;
  config.model.vit.mlp_ratio = 2;
  config.model.encoding = nn::EncodingSpec::parse("sape2-rel-k");
  config.recipe.epochs = 2;
  config.recipe.batch_size = 32;
  config.recipe.learning_rate = 3e-3;
  config.recipe.warmup_epochs = 0.5;
  config.recipe.flip = true;
  config.recipe.scale_low = 0.8;
  config.recipe.scale_high = 1.25;
  config.recipe.colour_jitter = 0.2;
  config.data.name = "shapes";
  config.seed = 3;
  fit_to(config.model, images, config.recipe);
  return config;
}

RunSummary train(const fs::path& folder, const RunConfig& config, const RunData& data,
                 int64_t stop_after = -1) {
  Observer observer;
  int64_t steps = 0;
  return train_in(RunFolder::open_or_create(folder, config), data, observer,
                  [&] { return ++steps == stop_after; });
}

TEST(Upsampling, IsBilinearBetweenTheMiddles) {
  const at::Tensor grid = at::randn({2, 3, 4, 5});
  const at::Tensor down = nn::upsampling_matrix(4, 13, grid.options());
  const at::Tensor across = nn::upsampling_matrix(5, 20, grid.options());
  const at::Tensor ours = at::matmul(down, at::matmul(grid, across.t()));
  const at::Tensor theirs = at::upsample_bilinear2d(grid, {13, 20}, /*align_corners=*/false);
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(nn::upsampling_matrix(1, 3, grid.options()).equal(at::ones({3, 1})));
}

TEST(Segmentation, AModelGivesClassesOfPixelsAtAnySize) {
  const data::Dataset images = shapes(data::Split::test, 2);
  nn::ViT model(small_run(images).model);
  const at::NoGradGuard no_grad;
  EXPECT_EQ(model.forward(at::zeros({2, 3, 32, 32})).sizes(), (at::IntArrayRef{2, 2, 32, 32}));
  EXPECT_EQ(model.forward(at::zeros({1, 3, 40, 24})).sizes(), (at::IntArrayRef{1, 2, 40, 24}));
  expect_contains(error_text([&] { model.forward(at::zeros({1, 3, 30, 32})); }), "do not divide");
  expect_contains(error_text([&] { model.forward_head(at::zeros({1, 64, 48})); }), "segmentation");
}

// Patches keep their places: what lights up one patch of the grid does so in its pixels.
TEST(Segmentation, LogitsLieOverTheirPatches) {
  nn::ModelConfig config = small_run(shapes(data::Split::test, 1)).model;
  config.vit.registers = 3;
  nn::ViT model(config);
  const at::NoGradGuard no_grad;
  at::Tensor tokens = at::zeros({1, 3 + 64, 48});
  tokens[0][3 + 8 * 5 + 2].fill_(1);  // row 5, column 2
  model.named_parameters()["head.weight"].fill_(1);
  const at::Tensor logits = model.forward_pixels(tokens, {8, 8}, {32, 32})[0][0];
  const auto brightest = logits.argmax().item<int64_t>();
  EXPECT_EQ(brightest / 32 / 4, 5);
  EXPECT_EQ(brightest % 32 / 4, 2);
}

TEST(Segmentation, LearnsShapes) {
  const ScratchFolder scratch;
  const RunData data{shapes(data::Split::train, 512), shapes(data::Split::test, 64)};
  RunConfig config = small_run(data.train);
  config.recipe.epochs = 8;
  const RunSummary summary = train(scratch / "run", config, data);
  // Calling everything background gives about 0.37.
  EXPECT_GT(summary.best, 0.6);
  const auto& figures = summary.last->test->figures;
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_GT(figure_of(figures, "pixel_accuracy"), 0.8);
  EXPECT_GT(figure_of(figures, "boundary_f1"), 0.1);

  // The file alone gives what was logged, and says what the model is for.
  const auto model = io::load_model(scratch / "run" / "last.safetensors");
  EXPECT_EQ(model->config().task, "segmentation");
  const Measured again = task_of(*model).measure(*model, data.test);
  EXPECT_EQ(again.figures, figures);
  EXPECT_NEAR(again.loss, summary.last->test->loss, 1e-6);
  const auto file = io::SafetensorsFile::open(scratch / "run" / "best.safetensors");
  EXPECT_TRUE(io::further_metadata(file).contains("train_mean_iou"));
  EXPECT_EQ(read_log(scratch / "run" / "log.jsonl").epochs.back().test->figures, figures);
}

TEST(Segmentation, GoesOnExactlyAfterAStop) {
  const ScratchFolder scratch;
  const RunData data{shapes(data::Split::train, 128), shapes(data::Split::test, 16)};
  RunConfig config = small_run(data.train);
  config.recipe.accumulation = 2;
  config.recipe.ema_decay = 0.9;
  config.recipe.stochastic_depth = 0.1;
  fit_to(config.model, config.recipe);
  train(scratch / "whole", config, data);
  EXPECT_FALSE(train(scratch / "stopped", config, data, 3).finished);
  EXPECT_TRUE(train(scratch / "stopped", config, data).finished);
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    EXPECT_TRUE(test::file_bytes(scratch / "whole" / name) ==
                test::file_bytes(scratch / "stopped" / name))
        << name;
  }
}

// However a batch is cut into pieces, its loss is the mean over its counted pixels.
TEST(Segmentation, PiecesOfABatchAddUpToItsLoss) {
  data::Dataset images = shapes(data::Split::train, 8);
  images.masks.narrow(0, 0, 4).fill_(data::kNotCounted);
  images.masks.narrow(0, 0, 1).narrow(1, 0, 3).fill_(1);
  RunConfig config = small_run(images);
  const Batch batch{data::normalise(images.images, images.normalisation), images.masks};
  std::vector<double> losses, norms;
  for (const int64_t pieces : {1, 2, 4}) {
    nn::ViT model(config.model);
    Recipe recipe = config.recipe;
    recipe.batch_size = 8;
    recipe.accumulation = pieces;
    const auto outcome = TrainingStep(model, recipe, 1).run(batch, 1e-3, 0);
    losses.push_back(outcome.loss());
    norms.push_back(outcome.gradient_norm());
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-5);
  EXPECT_NEAR(losses[2], losses[0], 1e-5);
  EXPECT_NEAR(norms[2], norms[0], 1e-4 * norms[0]);
}

TEST(Segmentation, RefusesWhatItDoesNotKnow) {
  const data::Dataset images = shapes(data::Split::test, 2);
  RunConfig config = small_run(images);
  config.recipe.mixup_alpha = 0.8;
  expect_contains(error_text([&] { config.validate(); }), "mixup_alpha is 0.8");
  config.recipe.mixup_alpha = 0;
  config.model.task = "segmentatoin";
  expect_contains(error_text([&] { config.validate(); }), "\"segmentation\"");
  config.model.task = nn::kClassification;
  expect_contains(error_text([&] { config.validate(); }), "scale_low is 0.8");

  nn::ViT model(small_run(images).model);
  const data::Dataset labelled =
      data::make_shapes({.split = data::Split::test, .count = 2}).dataset;
  expect_contains(error_text([&] { task_of(model).measure(model, labelled); }),
                  "without its masks");
  data::Dataset renamed = images;
  renamed.class_names = {"sky", "bird"};
  expect_contains(error_text([&] { task_of(model).measure(model, renamed); }), "\"sky\"");
}

TEST(Segmentation, AModelThatGivesNoNumbersHasNoFigures) {
  const data::Dataset images = shapes(data::Split::test, 2);
  nn::ViT model(small_run(images).model);
  const at::NoGradGuard no_grad;
  model.named_parameters()["head.bias"].fill_(NAN);
  EXPECT_THROW(task_of(model).measure(model, images), NotFinite);
}

// Runs and files of versions that knew classifiers alone say nothing of a task.
TEST(Task, ClassifiersAreWrittenAsEver) {
  const RunConfig config = test::tiny_run();
  EXPECT_EQ(to_json(config).find("task"), std::string::npos);
  EXPECT_EQ(to_json(config).find("colour_jitter"), std::string::npos);
  const RunConfig segmentation = small_run(shapes(data::Split::test, 1));
  EXPECT_EQ(run_config_from_json(to_json(segmentation), "here"), segmentation);
  EXPECT_NE(to_json(segmentation).find("\"task\": \"segmentation\""), std::string::npos);
}

}  // namespace
}  // namespace sape2::train
