#include "sape2/study/prediction.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"

#include "study/small_models.h"

#include <gtest/gtest.h>

#include <limits>

namespace sape2::study {
namespace {

data::Image gradient(std::int64_t height, std::int64_t width) {
  data::Image image{height, width, 3, {}};
  for (std::int64_t i = 0; i < height * width * 3; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(i % 251));
  }
  return image;
}

TEST(Prediction, NamesClassesFromTheMostProbableOn) {
  const auto model_held = test::small_model("sape2-rel-k");
  nn::ViT& model = *model_held;
  const auto predictions = predict(model, gradient(70, 50), 100);
  ASSERT_EQ(predictions.size(), model.config().class_names.size());
  double sum = 0;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    sum += predictions[i].probability;
    if (i > 0) {
      EXPECT_LE(predictions[i].probability, predictions[i - 1].probability);
    }
    EXPECT_EQ(predictions[i].name,
              model.config().class_names[static_cast<std::size_t>(predictions[i].index)]);
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_EQ(predict(model, gradient(70, 50), 3).size(), 3u);
}

TEST(Prediction, ReadsPixelsInTheModelsOrder) {
  const auto model_held = test::small_model("ape");
  nn::ViT& model = *model_held;
  const data::Image image = gradient(32, 32);
  at::Tensor batch = at::empty({1, 3, 32, 32});
  for (std::int64_t y = 0; y < 32; ++y) {
    for (std::int64_t x = 0; x < 32; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        batch[0][c][y][x] = image.pixels[static_cast<std::size_t>((y * 32 + x) * 3 + c)] / 255.0;
      }
    }
  }
  const at::NoGradGuard no_grad;
  const at::Tensor expected = at::softmax(model.forward(batch)[0], 0);
  for (const Prediction& prediction : predict(model, image, 10)) {
    EXPECT_NEAR(prediction.probability, expected[prediction.index].item<double>(), 1e-4);
  }
}

TEST(Prediction, GivesAGreyModelTheBrightness) {
  nn::ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.vit.channels = 1;
  nn::ViT model(config);
  model.eval();
  const auto predictions = predict(model, gradient(40, 40), 2);
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_TRUE(predictions[0].name.starts_with("class "));
}

TEST(Prediction, LogitsThatAreNoNumbersSayNothing) {
  const auto model = test::small_model("ape");
  at::Tensor logits = at::zeros({model->config().vit.classes});
  EXPECT_NO_THROW(ranked(model->config(), logits));
  logits[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(ranked(model->config(), logits), Error);
  logits[1] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(ranked(model->config(), logits), Error);
}

}  // namespace
}  // namespace sape2::study
