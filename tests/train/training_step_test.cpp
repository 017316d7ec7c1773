#include "sape2/train/training_step.h"

#include "sape2/nn/vit.h"
#include "sape2/ops/training.h"

#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sape2::train::test {
namespace {

nn::ModelConfig plain_model() {
  nn::ModelConfig model = tiny_run().model;
  model.vit.mlp_dropout = model.vit.stochastic_depth = 0;
  return model;
}

Recipe plain_recipe() {
  Recipe recipe = tiny_run().recipe;
  recipe.accumulation = 1;
  recipe.ema_decay = 0;
  return recipe;
}

io::NamedTensors copy_of(const io::NamedTensors& tensors) {
  io::NamedTensors copy;
  for (const auto& [name, tensor] : tensors) copy.emplace(name, tensor.clone());
  return copy;
}

double largest_difference(const io::NamedTensors& a, const io::NamedTensors& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a) {
    largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
  }
  return largest;
}

// Weights after a few steps.
io::NamedTensors trained(const Recipe& recipe, int steps = 4) {
  nn::ViT model(plain_model(), {.seed = 3});
  TrainingStep training(model, recipe, 1);
  ShuffledSource source(corners(64, 1), 16, 1);
  for (int step = 0; step < steps; ++step) training.run(source.batch(0, step), 1e-3, step);
  return copy_of(training.weights_to_keep());
}

TEST(Loss, IsTheCrossEntropyOfTheProbabilities) {
  const at::Tensor logits = at::tensor({1.0f, 2.0f, 0.5f, 0.0f, -1.0f, 3.0f}).view({2, 3});
  const at::Tensor targets = at::tensor({0.2f, 0.8f, 0.0f, 0.0f, 0.0f, 1.0f}).view({2, 3});
  double expected = 0;
  for (int image = 0; image < 2; ++image) {
    double sum = 0;
    for (int c = 0; c < 3; ++c) sum += std::exp(logits[image][c].item<double>());
    for (int c = 0; c < 3; ++c) {
      expected -=
          targets[image][c].item<double>() * (logits[image][c].item<double>() - std::log(sum));
    }
  }
  EXPECT_NEAR(ops::soft_cross_entropy(logits, targets, 0.5).item<double>(), expected / 2, 1e-6);
}

TEST(TrainingStep, AccumulationChangesNothingButRounding) {
  Recipe pieces = plain_recipe();
  pieces.accumulation = 4;
  EXPECT_LT(largest_difference(trained(plain_recipe()), trained(pieces)), 1e-5);
}

TEST(TrainingStep, ClippingBoundsTheStep) {
  Recipe tight = plain_recipe();
  tight.clip_norm = 1e-12;  // so small that epsilon dominates and hardly anything moves
  tight.weight_decay = 0;
  nn::ViT untouched(plain_model(), {.seed = 3});
  io::NamedTensors start;
  for (const auto& item : untouched.named_parameters()) start.emplace(item.key(), item.value());
  EXPECT_LT(largest_difference(trained(tight), start), 1e-6);
  EXPECT_GT(largest_difference(trained(plain_recipe()), start), 1e-4);
}

TEST(TrainingStep, DecaysOnlyWhatDecays) {
  Recipe recipe = plain_recipe();
  recipe.weight_decay = 10;
  recipe.clip_norm = 1e-12;  // the gradient moves next to nothing: what is left is decay
  nn::ViT model(plain_model(), {.seed = 3});
  TrainingStep training(model, recipe, 1);
  const io::NamedTensors before = copy_of(training.weights_to_keep());
  ShuffledSource source(corners(64, 1), 16, 1);
  training.run(source.batch(0, 0), 1e-2, 0);
  int decayed = 0, exempt = 0;
  for (const auto& [name, after] : training.weights_to_keep()) {
    const bool decays = model.decayed_parameters().contains(name);
    const at::Tensor expected = before.at(name) * (decays ? 1 - 1e-2 * 10 : 1);
    EXPECT_TRUE(at::allclose(after, expected, 1e-4, 1e-5)) << name;
    ++(decays ? decayed : exempt);
  }
  EXPECT_EQ(decayed, 10);  // patches, head, and 4 of each of 2 layers
  EXPECT_GT(exempt, decayed);
}

TEST(TrainingStep, AverageFollowsItsFormula) {
  Recipe recipe = plain_recipe();
  recipe.ema_decay = 0.7;
  nn::ViT model(plain_model(), {.seed = 3});
  TrainingStep training(model, recipe, 1);
  ShuffledSource source(corners(160, 1), 16, 1);
  io::NamedTensors expected = copy_of(training.state());
  for (int step = 0; step < 10; ++step) {
    training.run(source.batch(0, step), 1e-3, step);
    const double decay = std::min(0.7, (1.0 + step) / (10.0 + step));
    for (const auto& [name, average] : training.weights_to_keep()) {
      at::Tensor& mine = expected["average." + name];
      mine = mine * decay + training.state().at("weights." + name) * (1 - decay);
      EXPECT_TRUE(at::allclose(average, mine, 1e-5, 1e-6)) << name;
    }
  }
}

TEST(TrainingStep, DropoutDependsOnSeedAndStepAlone) {
  const auto loss = [](uint64_t seed, int64_t step, bool draw_before) {
    nn::ViT model(tiny_run().model, {.seed = 3});
    TrainingStep training(model, tiny_run().recipe, seed);
    ShuffledSource source(corners(64, 1), 16, 1);
    if (draw_before) at::rand({100});
    return training.run(source.batch(0, 0), 1e-3, step).loss();
  };
  EXPECT_EQ(loss(1, 0, false), loss(1, 0, true));
  EXPECT_NE(loss(1, 0, false), loss(1, 1, false));
  EXPECT_NE(loss(1, 0, false), loss(2, 0, false));
}

// What a GPU does, on the CPU: rounded copies compute, float32 weights learn.
TEST(TrainingStep, BfloatKeepsFloatMasterWeights) {
  Recipe recipe = plain_recipe();
  recipe.precision = "bfloat16";
  nn::ViT model(plain_model(), {.seed = 3});
  TrainingStep training(model, recipe, 1);
  ShuffledSource source(corners(64, 1), 16, 1);
  for (int step = 0; step < 4; ++step) training.run(source.batch(0, step), 1e-3, step);
  const io::NamedTensors masters = training.weights_to_keep();
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& master = masters.at(item.key());
    EXPECT_EQ(master.scalar_type(), at::kFloat);
    const bool positions = item.key().find(".pos.") != std::string::npos;
    EXPECT_EQ(item.value().scalar_type(), positions ? at::kFloat : at::kBFloat16) << item.key();
    EXPECT_TRUE(at::equal(item.value(), master.to(item.value().scalar_type()))) << item.key();
  }
  // Close to training in float32, and not equal to its own rounding.
  EXPECT_LT(largest_difference(trained(plain_recipe()), masters), 0.01);
  const at::Tensor weight = masters.at("head.weight");
  EXPECT_FALSE(at::equal(weight, weight.to(at::kBFloat16).to(at::kFloat)));
}

TEST(TrainingStep, MeasuresItsParts) {
  nn::ViT model(plain_model(), {.seed = 3});
  TrainingStep training(model, plain_recipe(), 1);
  PhaseSeconds seconds;
  training.measure(&seconds);
  ShuffledSource source(corners(64, 1), 16, 1);
  training.run(source.batch(0, 0), 1e-3, 0);
  EXPECT_GT(seconds.forward, 0);
  EXPECT_GT(seconds.backward, 0);
  EXPECT_GT(seconds.optimizer, 0);
  EXPECT_LT(seconds.forward + seconds.backward + seconds.optimizer, 60);
}

}  // namespace
}  // namespace sape2::train::test
