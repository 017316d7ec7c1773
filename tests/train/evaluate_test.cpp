#include "sape2/train/evaluate.h"

#include "sape2/nn/vit.h"

#include "support/error_text.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sape2::train::test {
namespace {

using namespace sape2::testing;

nn::ModelConfig seven_classes() {
  nn::ModelConfig config = tiny_run().model;
  config.vit.classes = 7;
  return config;
}

data::Dataset seven_classes_of_corners(int64_t images) {
  data::Dataset dataset = corners(images, 5);
  dataset.class_names = {"a", "b", "c", "d", "e", "f", "g"};
  dataset.labels = (dataset.labels + at::arange(images, at::kLong)) % 7;
  return dataset;
}

TEST(Evaluate, CountsAsDefined) {
  nn::ViT model(seven_classes(), {.seed = 1});
  const data::Dataset dataset = seven_classes_of_corners(50);
  const Evaluation result = evaluate(model, dataset, {.batch_size = 16});  // 3 full and a rest

  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor images = (dataset.images.to(at::kFloat) / 255 - 0.4) / 0.25;
  const at::Tensor logits = model.forward(images);
  int64_t top1 = 0, top5 = 0;
  double loss = 0;
  at::Tensor confusion = at::zeros({7, 7}, at::kLong);
  for (int64_t i = 0; i < 50; ++i) {
    const auto label = dataset.labels[i].item<int64_t>();
    std::vector<float> row(logits[i].data_ptr<float>(), logits[i].data_ptr<float>() + 7);
    const auto better =
        std::ranges::count_if(row, [&](float x) { return x > row[static_cast<size_t>(label)]; });
    top1 += better < 1;
    top5 += better < 5;
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    loss += std::log(sum) - row[static_cast<size_t>(label)];
    confusion[label][std::ranges::max_element(row) - row.begin()] += 1;
  }
  EXPECT_EQ(result.images, 50);
  EXPECT_DOUBLE_EQ(result.top1, static_cast<double>(top1) / 50);
  EXPECT_DOUBLE_EQ(result.top5, static_cast<double>(top5) / 50);
  EXPECT_NEAR(result.loss, loss / 50, 1e-5);
  EXPECT_TRUE(at::equal(result.confusion, confusion));
  EXPECT_LT(top5, 50);  // or the test would show nothing
}

TEST(Evaluate, LeavesTheModelInItsMode) {
  nn::ViT model(tiny_run().model, {.seed = 1});
  model.train();
  evaluate(model, corners(10, 1));
  EXPECT_TRUE(model.is_training());
}

TEST(Evaluate, TakesImagesOfAnotherSize) {
  nn::ViT model(tiny_run().model, {.seed = 1});
  data::Dataset dataset = corners(10, 1);
  dataset.images = at::cat({dataset.images, dataset.images}, 3);
  EXPECT_EQ(evaluate(model, dataset).images, 10);
}

TEST(Evaluate, RefusesWhatDoesNotFit) {
  nn::ViT model(seven_classes(), {.seed = 1});
  expect_contains(error_text([&] { evaluate(model, corners(10, 1)); }),
                  "corners has 4 classes but the model has 7");
  data::Dataset colours = seven_classes_of_corners(10);
  colours.images = colours.images.expand({10, 3, 8, 8});
  expect_contains(error_text([&] { evaluate(model, colours); }), "3 channels");
  data::Dataset none = seven_classes_of_corners(10);
  none.images = none.images.narrow(0, 0, 0);
  expect_contains(error_text([&] { evaluate(model, none); }), "no images");
  data::Dataset odd = seven_classes_of_corners(10);
  odd.images = odd.images.narrow(3, 0, 7);
  expect_contains(error_text([&] { evaluate(model, odd); }), "8×7");
}

TEST(Evaluate, LogitsThatAreNoNumbersHaveNoAccuracy) {
  nn::ViT model(seven_classes(), {.seed = 1});
  {
    const at::NoGradGuard no_grad;
    model.named_parameters()["head.bias"][3] = std::numeric_limits<float>::infinity();
  }
  expect_contains(error_text([&] { evaluate(model, seven_classes_of_corners(20)); }),
                  "not a finite number for 20 of the 20 images");
}

}  // namespace
}  // namespace sape2::train::test
