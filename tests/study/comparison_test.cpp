#include "sape2/study/comparison.h"

#include "sape2/base/error.h"

#include "io/scratch_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace sape2::study {
namespace {

namespace fs = std::filesystem;
using io::test::ScratchFolder;

ComparisonPlan tiny_plan() {
  ComparisonPlan plan;
  plan.rows = listed_rows("ape,sape2-rel-k[gates=open]");
  plan.common.model.vit.depth = 1;
  plan.common.model.vit.width = 16;
  plan.common.model.vit.heads = 2;
  plan.common.data = {.name = "shapes", .train_images = 64, .test_images = 32};
  plan.common.recipe.epochs = 2;
  plan.common.recipe.warmup_epochs = 1;
  plan.common.recipe.batch_size = 16;
  plan.common.recipe.log_steps = 2;
  plan.seeds = 2;
  plan.recipe = "tiny";
  plan.model = "tiny";
  return plan;
}

Comparison compare(ComparisonPlan plan, const fs::path& folder, ComparisonObserver& observer,
                   const train::StopRequested& stop = {}) {
  const train::RunData data = train::load_run_data(plan.common.data);
  train::fit_to(plan.common.model, data.train, plan.common.recipe);
  return run_comparison(plan, data, folder, observer, stop);
}

class Counter : public ComparisonObserver {
 public:
  void run_begins(const nn::EncodingSpec&, std::uint64_t, std::int64_t, std::int64_t total,
                  bool reused) override {
    total_ = total;
    reused_ += reused;
  }
  void step_done(const train::StepReport&) override { ++steps_; }

  std::int64_t total_ = 0, reused_ = 0, steps_ = 0;
};

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(Comparison, TrainsEveryEncodingAndSeedOnce) {
  const ScratchFolder folder;
  Counter first, second;
  const Comparison comparison = compare(tiny_plan(), folder / "out", first);
  EXPECT_TRUE(comparison.finished);
  EXPECT_EQ(first.total_, 4);
  EXPECT_EQ(first.reused_, 0);
  EXPECT_EQ(first.steps_, 4 * 2 * 4);
  ASSERT_EQ(comparison.rows.size(), 2u);
  for (const RowResult& row : comparison.rows) {
    ASSERT_EQ(row.runs.size(), 2u);
    EXPECT_GT(row.parameters, 0);
    for (const RunResult& run : row.runs) {
      EXPECT_EQ(run.epochs.size(), 2u);
      EXPECT_EQ(run.top1, run.epochs.back().test->top1);
      EXPECT_GE(run.best_top1, run.top1);
      EXPECT_GT(run.seconds, 0);
      EXPECT_GT(run.images_per_second, 0);
      EXPECT_GT(run.peak_bytes, 1 << 20);
    }
    EXPECT_NE(row.runs[0].loss, row.runs[1].loss) << "two seeds must differ";
  }
  for (const char* name : {"table.md", "results.json", "report.html"}) {
    EXPECT_TRUE(fs::exists(folder / "out" / name)) << name;
  }
  EXPECT_TRUE(fs::exists(folder / "out/runs/sape2-rel-k.gates=open/seed-1/best.safetensors"));

  const Comparison again = compare(tiny_plan(), folder / "out", second);
  EXPECT_EQ(second.reused_, 4);
  EXPECT_EQ(second.steps_, 0);
  EXPECT_EQ(again.rows[1].runs[1].loss, comparison.rows[1].runs[1].loss);
}

TEST(Comparison, GoesOnWhereItWasCutOff) {
  const ScratchFolder folder;
  Counter whole, before, after;
  compare(tiny_plan(), folder / "whole", whole);

  // In the second of four runs, in the middle of an epoch.
  const auto stop = [&] { return before.steps_ >= 10; };
  const Comparison cut = compare(tiny_plan(), folder / "cut", before, stop);
  EXPECT_FALSE(cut.finished);
  EXPECT_EQ(cut.rows[0].runs.size(), 1u);
  EXPECT_EQ(cut.rows[1].runs.size(), 0u);
  EXPECT_NE(text_of(folder / "cut/table.md").find("Not all runs are finished"), std::string::npos);

  EXPECT_TRUE(compare(tiny_plan(), folder / "cut", after).finished);
  EXPECT_EQ(after.reused_, 1);
  EXPECT_EQ(before.steps_ + after.steps_, whole.steps_);
  for (const char* run : {"ape/seed-0", "sape2-rel-k.gates=open/seed-0", "ape/seed-1"}) {
    const auto file = fs::path("runs") / run / "last.safetensors";
    EXPECT_EQ(text_of(folder.path() / "whole" / file), text_of(folder.path() / "cut" / file))
        << run;
  }
}

TEST(Comparison, TrainsARunAgainOnlyIfAsked) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = 1;
  plan.rows.resize(1);
  Counter counter, none, again;
  compare(plan, folder / "out", counter);
  const fs::path run = folder / "out/runs/ape/seed-0";
  const std::string weights = text_of(run / "last.safetensors"), log = text_of(run / "log.jsonl");
  fs::remove_all(run / "checkpoints");
  fs::remove(run / "result.json");
  try {
    compare(plan, folder / "out", none);
    FAIL() << "a run without its checkpoints was begun anew";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--restart"), std::string::npos) << error.what();
  }
  EXPECT_EQ(none.steps_, 0);
  EXPECT_EQ(text_of(run / "log.jsonl"), log);
  plan.restart = true;
  EXPECT_TRUE(compare(plan, folder / "out", again).finished);
  EXPECT_EQ(again.steps_, counter.steps_);
  EXPECT_EQ(text_of(run / "aside-1/log.jsonl"), log);
  EXPECT_EQ(text_of(run / "last.safetensors"), weights);
}

TEST(Comparison, RefusesAFolderOfAnotherPlan) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = 1;
  plan.rows.resize(1);
  plan.common.recipe.epochs = 1;
  Counter counter;
  compare(plan, folder / "out", counter);
  plan.common.recipe.learning_rate *= 2;
  try {
    compare(plan, folder / "out", counter);
    FAIL() << "another plan was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ape/seed-0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--out"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sape2::study
