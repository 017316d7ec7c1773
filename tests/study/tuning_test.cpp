#include "sape2/study/tuning.h"

#include "sape2/base/error.h"
#include "sape2/study/comparison_report.h"

#include "study/tiny_comparison.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sape2::study {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;
using test::compare;
using test::RunCounter;

Trial trial(double rate, double top1, double loss, std::string failure = "") {
  return {{{"learning_rate", rate}}, top1, loss, std::move(failure)};
}

TEST(TuningAxis, IsReadFromText) {
  const TuningAxis axis = parse_tuning_axis("learning-rate=1e-3,5e-4");
  EXPECT_EQ(axis.key, "learning_rate");
  EXPECT_EQ(axis.values, (std::vector<train::RecipeValue>{1e-3, 5e-4}));
  EXPECT_EQ(parse_tuning_axis("flip=true,false").values.size(), 2u);
}

TEST(TuningAxis, MistakesAreSentences) {
  const auto mistake = [](const char* text) {
    return error_text([&] { parse_tuning_axis(text); });
  };
  EXPECT_NE(mistake("learning-rate").find("--tune learning-rate=1e-3,5e-4"), std::string::npos);
  EXPECT_NE(mistake("learning-rat=1").find("\"learning_rate\""), std::string::npos);
  EXPECT_NE(mistake("learning-rate=fast").find("fast"), std::string::npos);
  EXPECT_NE(mistake("learning-rate=1e-3,").find("learning_rate"), std::string::npos);
  EXPECT_NE(mistake("learning-rate=1e-3,0.001").find("twice"), std::string::npos);
  EXPECT_NE(mistake("epochs=1,2").find("same budget"), std::string::npos);
}

TEST(TuningPlan, GridHasEveryCombination) {
  const TuningPlan plan{
      .axes = {parse_tuning_axis("learning-rate=1e-3,5e-4"), parse_tuning_axis("clip-norm=0,1,2")}};
  const auto grid = plan.grid();
  ASSERT_EQ(grid.size(), 6u);
  EXPECT_EQ(to_string(grid[0]), "learning_rate 0.001, clip_norm 0");
  EXPECT_EQ(to_string(grid[1]), "learning_rate 0.001, clip_norm 1");
  EXPECT_EQ(to_string(grid[5]), "learning_rate 0.0005, clip_norm 2");
}

TEST(TuningPlan, AGridThatNobodyCanTrainIsRefused) {
  TuningPlan plan;
  for (const char* key : {"learning-rate", "weight-decay", "clip-norm", "dropout"}) {
    plan.axes.push_back(parse_tuning_axis(std::string(key) + "=0.1,0.2,0.3,0.4,0.5,0.6,0.7"));
  }
  EXPECT_NE(error_text([&] { plan.grid(); }).find("more than 1000 combinations"),
            std::string::npos);
}

TEST(BestTrial, AccuracyThenLossThenOrder) {
  EXPECT_EQ(best_trial({trial(1, 0.5, 2), trial(2, 0.6, 3), trial(3, 0.4, 1)}), 1u);
  const std::vector<Trial> tied{trial(1, 0.6, 2), trial(2, 0.6, 1), trial(3, 0.6, 1)};
  EXPECT_EQ(best_trial(tied), 1u);
  EXPECT_TRUE(best_is_tied(tied));
  EXPECT_FALSE(best_is_tied({trial(1, 0.5, 2), trial(2, 0.6, 3)}));
}

TEST(BestTrial, WhatDivergedIsNeverChosen) {
  EXPECT_EQ(best_trial({trial(1, 0, 0, "diverged"), trial(2, 0.1, 9)}), 1u);
  EXPECT_FALSE(best_trial({trial(1, 0, 0, "diverged")}));
  EXPECT_FALSE(best_is_tied({trial(1, 0, 0, "diverged"), trial(2, 0, 9)}));
}

TEST(Tuning, SaysWhereTheGridWasTooNarrow) {
  const TuningPlan plan{.axes = {parse_tuning_axis("learning-rate=1e-3,5e-4,3e-4")}};
  EXPECT_TRUE(axes_at_their_end(plan, {{"learning_rate", 5e-4}}).empty());
  EXPECT_EQ(axes_at_their_end(plan, {{"learning_rate", 3e-4}}).size(), 1u);
  EXPECT_EQ(axes_at_their_end(plan, {{"learning_rate", 1e-3}}).size(), 1u);
  const TuningPlan flags{.axes = {parse_tuning_axis("flip=true,false")}};
  EXPECT_TRUE(axes_at_their_end(flags, {{"flip", true}}).empty());
}

TEST(Tuning, HoldsOutFiveThousandImagesOrATenth) {
  EXPECT_EQ(held_out_images(50'000), 5000);
  EXPECT_EQ(held_out_images(60'000), 5000);
  EXPECT_EQ(held_out_images(4000), 400);
  EXPECT_EQ(held_out_images(5), 1);
}

ComparisonPlan tuned_plan() {
  ComparisonPlan plan = test::tiny_plan();
  plan.seeds = {0};
  plan.common.recipe.epochs = 2;
  plan.tuning = TuningPlan{
      .axes = {parse_tuning_axis("learning-rate=1e-3,3e-3")}, .epochs = 1, .held_out = 8};
  return plan;
}

TEST(Tuning, ChoosesForEveryEncodingAndTrainsWithTheChoice) {
  const ScratchFolder folder;
  RunCounter counter, again;
  const Comparison comparison = compare(tuned_plan(), folder / "out", counter);
  EXPECT_TRUE(comparison.finished);
  // Four trials of 56 images, two runs of 64.
  EXPECT_EQ(counter.steps_, 4 * 1 * 3 + 2 * 2 * 4);
  for (const RowResult& row : comparison.rows) {
    ASSERT_EQ(row.trials.size(), 2u);
    ASSERT_EQ(row.chosen, row.trials[*best_trial(row.trials)].settings);
    ASSERT_EQ(row.runs.size(), 1u);
  }
  const auto config =
      train::RunFolder::read_config(folder / "out/runs/sape2-rel-k.gates=open/seed-0");
  EXPECT_EQ(train::RecipeValue(config.recipe.learning_rate), comparison.rows[1].chosen[0].value);
  EXPECT_EQ(config.data.held_out, 0);
  const auto trial = train::RunFolder::read_config(folder / "out/tuning/ape/learning_rate=0.003");
  EXPECT_EQ(trial.recipe.learning_rate, 0.003);
  EXPECT_EQ(trial.recipe.epochs, 1);
  EXPECT_EQ(trial.recipe.warmup_epochs, 0.25);
  EXPECT_EQ(trial.data.held_out, 8);

  compare(tuned_plan(), folder / "out", again);
  EXPECT_EQ(again.steps_, 0) << "trials are remembered";
  ComparisonPlan wider = tuned_plan();
  wider.tuning = TuningPlan{
      .axes = {parse_tuning_axis("learning-rate=1e-3,3e-3,1e-9")}, .epochs = 1, .held_out = 8};
  RunCounter more;
  try {
    compare(wider, folder / "out", more);
  } catch (const Error&) {
    // It chose the new value: runs with the old one stay as they are.
  }
  EXPECT_EQ(more.steps_, 2 * 3) << "only the new value is tried";
}

TEST(Tuning, IsShownInEveryReport) {
  const ScratchFolder folder;
  RunCounter counter;
  const Comparison comparison = compare(tuned_plan(), folder / "out", counter);
  const std::string table = file_bytes(folder / "out/table.md");
  EXPECT_NE(table.find("| encoding | learning_rate | top-1 % |"), std::string::npos) << table;
  EXPECT_NE(table.find("8 images held out of the training images"), std::string::npos) << table;
  EXPECT_NE(table.find("| encoding | learning_rate 0.001 | learning_rate 0.003 |"),
            std::string::npos);
  EXPECT_NE(table.find(" * |"), std::string::npos);
  EXPECT_NE(table.find("lies at the end of the values tried for ape (learning_rate "),
            std::string::npos);
  EXPECT_NE(file_bytes(folder / "out/report.html").find("<h2>Tuning</h2>"), std::string::npos);
  const std::string text = file_bytes(folder / "out/results.json");
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["tuning"]["axes"]["learning_rate"], (std::vector<double>{1e-3, 3e-3}));
  EXPECT_EQ(json["rows"][0]["trials"].size(), 2u);
  EXPECT_TRUE(json["rows"][0]["chosen"].contains("learning_rate"));
  EXPECT_EQ(json_report(comparison_from_json(text, "results.json")), text);
}

// Cut off at every few steps, it comes to the same choice and the same weights.
TEST(Tuning, GoesOnWhereItWasCutOff) {
  const ScratchFolder folder;
  RunCounter whole;
  const Comparison undisturbed = compare(tuned_plan(), folder / "whole", whole);
  std::int64_t steps = 0;
  for (int session = 0;; ++session) {
    ASSERT_LT(session, 20);
    RunCounter counter;
    const auto stop = [&] { return counter.steps_ >= 5; };
    const bool finished = compare(tuned_plan(), folder / "cut", counter, stop).finished;
    steps += counter.steps_;
    if (finished) break;
  }
  EXPECT_EQ(steps, whole.steps_) << "no step is done twice";
  EXPECT_EQ(file_bytes(folder / "cut/runs/ape/seed-0/last.safetensors"),
            file_bytes(folder / "whole/runs/ape/seed-0/last.safetensors"));
}

TEST(Tuning, AnEncodingThatDivergesEverywhereIsLeftOutAndSaid) {
  const ScratchFolder folder;
  ComparisonPlan plan = tuned_plan();
  plan.rows.resize(1);
  plan.common.recipe = test::diverging_recipe();
  plan.tuning->axes = {parse_tuning_axis("learning-rate=10,9")};
  plan.tuning->epochs = 8;
  RunCounter counter;
  const Comparison comparison = compare(plan, folder / "out", counter);
  EXPECT_TRUE(comparison.finished);
  EXPECT_EQ(counter.failed_, 2);
  EXPECT_TRUE(comparison.rows[0].chosen.empty());
  EXPECT_FALSE(fs::exists(folder / "out/runs"));
  const std::string table = file_bytes(folder / "out/table.md");
  EXPECT_NE(table.find("ape diverged with every setting tried"), std::string::npos) << table;
  EXPECT_NE(table.find("| ape | diverged | diverged |"), std::string::npos) << table;
}

// A value of the grid that makes no recipe shows before anything is trained.
TEST(Tuning, AGridThatMakesNoRecipeIsRefusedAtOnce) {
  const ScratchFolder folder;
  ComparisonPlan plan = tuned_plan();
  plan.common.recipe.final_learning_rate = 1e-4;
  plan.tuning->axes = {parse_tuning_axis("learning-rate=1e-3,1e-5")};
  RunCounter counter;
  EXPECT_NE(error_text([&] { compare(plan, folder / "out", counter); }).find("final_learning_rate"),
            std::string::npos);
  EXPECT_EQ(counter.steps_, 0);
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace sape2::study
