#include "sape2/train/schedule.h"

#include "sape2/train/recipe.h"

#include <gtest/gtest.h>

namespace sape2::train {
namespace {

Recipe recipe() {
  Recipe recipe;
  recipe.epochs = 10;
  recipe.warmup_epochs = 2;
  recipe.learning_rate = 0.8;
  recipe.final_learning_rate = 0.2;
  return recipe;
}

TEST(Schedule, WarmsUpLinearlyAndFallsAsACosine) {
  const Schedule schedule(recipe(), 5);  // 10 steps of warm-up, 40 of cosine
  EXPECT_EQ(schedule.steps(), 50);
  EXPECT_EQ(schedule.warmup_steps(), 10);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.08);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(4), 0.4);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(9), 0.8);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(10), 0.8);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(20), 0.2 + 0.6 * (1 + 0.7071067811865476) / 2);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(30), 0.5);
  EXPECT_NEAR(schedule.learning_rate(49), 0.2 + 0.6 * (1 - 0.9969173337331280) / 2, 1e-12);
}

TEST(Schedule, NeedsNoWarmUp) {
  Recipe without = recipe();
  without.warmup_epochs = 0;
  const Schedule schedule(without, 3);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.8);
}

TEST(Schedule, TakesPartsOfAnEpoch) {
  Recipe part = recipe();
  part.warmup_epochs = 0.25;
  EXPECT_EQ(Schedule(part, 100).warmup_steps(), 25);
}

TEST(Schedule, MayBeWarmUpOnly) {
  Recipe all = recipe();
  all.warmup_epochs = 10;
  const Schedule schedule(all, 2);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(19), 0.8);
}

}  // namespace
}  // namespace sape2::train
