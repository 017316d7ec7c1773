#include "sape2/study/comparison.h"

#include "sape2/base/error.h"
#include "sape2/io/folder_lock.h"

#include "study/tiny_comparison.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

namespace sape2::study {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;
using test::compare;
using test::RunCounter;
using test::tiny_plan;

TEST(Comparison, TrainsEveryEncodingAndSeedOnce) {
  const ScratchFolder folder;
  RunCounter first, second;
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
      EXPECT_EQ(run.figures, run.epochs.back().test->figures);
      EXPECT_GE(run.best, run.score());
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
  RunCounter whole, before, after;
  compare(tiny_plan(), folder / "whole", whole);

  // In the second of four runs, in the middle of an epoch.
  const auto stop = [&] { return before.steps_ >= 10; };
  const Comparison cut = compare(tiny_plan(), folder / "cut", before, stop);
  EXPECT_FALSE(cut.finished);
  EXPECT_EQ(cut.rows[0].runs.size(), 1u);
  EXPECT_EQ(cut.rows[1].runs.size(), 0u);
  EXPECT_NE(file_bytes(folder / "cut/table.md").find("Not all runs are finished"),
            std::string::npos);

  EXPECT_TRUE(compare(tiny_plan(), folder / "cut", after).finished);
  EXPECT_EQ(after.reused_, 1);
  EXPECT_EQ(before.steps_ + after.steps_, whole.steps_);
  for (const char* run : {"ape/seed-0", "sape2-rel-k.gates=open/seed-0", "ape/seed-1"}) {
    const auto file = fs::path("runs") / run / "last.safetensors";
    EXPECT_EQ(file_bytes(folder.path() / "whole" / file), file_bytes(folder.path() / "cut" / file))
        << run;
  }
}

TEST(Comparison, TrainsARunAgainOnlyIfAsked) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = {0};
  plan.rows.resize(1);
  RunCounter counter, none, again;
  compare(plan, folder / "out", counter);
  const fs::path run = folder / "out/runs/ape/seed-0";
  const std::string weights = file_bytes(run / "last.safetensors"),
                    log = file_bytes(run / "log.jsonl");
  fs::remove_all(run / "checkpoints");
  fs::remove(run / "result.json");
  try {
    compare(plan, folder / "out", none);
    FAIL() << "a run without its checkpoints was begun anew";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--restart"), std::string::npos) << error.what();
  }
  EXPECT_EQ(none.steps_, 0);
  EXPECT_EQ(file_bytes(run / "log.jsonl"), log);
  plan.restart = true;
  EXPECT_TRUE(compare(plan, folder / "out", again).finished);
  EXPECT_EQ(again.steps_, counter.steps_);
  EXPECT_EQ(file_bytes(run / "aside-1/log.jsonl"), log);
  EXPECT_EQ(file_bytes(run / "last.safetensors"), weights);
}

TEST(Comparison, RefusesAFolderOfAnotherPlan) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = {0};
  plan.rows.resize(1);
  plan.common.recipe.epochs = 1;
  RunCounter counter;
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

// A learning rate that no training survives: the run is a row's missing figure, not the end of all.
TEST(Comparison, ARunThatDivergesIsShownAndTheOthersGoOn) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = {0};
  plan.rows = listed_rows("ape,none");
  plan.common.recipe = test::diverging_recipe();
  RunCounter counter, again, anew;
  const Comparison comparison = compare(plan, folder / "out", counter);
  EXPECT_TRUE(comparison.finished);
  EXPECT_EQ(counter.failed_, 2);
  for (const RowResult& row : comparison.rows) {
    EXPECT_TRUE(row.runs.empty());
    ASSERT_EQ(row.failed.size(), 1u);
    EXPECT_NE(row.failed[0].reason.find("not a finite number"), std::string::npos);
    EXPECT_EQ(row.failed[0].reason.find("--learning-rate"), std::string::npos)
        << "advice for a single run has no place in a table";
  }
  EXPECT_NE(file_bytes(folder / "out/table.md").find("| diverged |"), std::string::npos);
  compare(plan, folder / "out", again);
  EXPECT_EQ(again.steps_, 0) << "it would only diverge again";
  plan.restart = true;
  compare(plan, folder / "out", anew);
  EXPECT_GT(anew.steps_, 0);
  EXPECT_TRUE(fs::exists(folder / "out/runs/ape/seed-0/aside-1/result.json"));
}

// What somebody else trains is left to them, and taken over when they are gone.
TEST(Comparison, LeavesRunsToOtherProcesses) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = {0};
  const fs::path theirs = folder / "out/runs/ape/seed-0";
  fs::create_directories(theirs);
  auto lock = io::FolderLock::take(theirs);
  ASSERT_TRUE(lock);
  RunCounter counter;
  counter.on_wait_ = [&] { lock.reset(); };
  const Comparison comparison = compare(plan, folder / "out", counter);
  EXPECT_TRUE(comparison.finished);
  EXPECT_EQ(counter.waiting_for_, 1);
  EXPECT_EQ(counter.begun_,
            (std::vector<std::string>{"sape2-rel-k[gates=open], seed 0", "ape, seed 0"}));
  EXPECT_EQ(comparison.rows[0].runs.size(), 1u);
}

TEST(Comparison, StopsWhileOthersTrain) {
  const ScratchFolder folder;
  ComparisonPlan plan = tiny_plan();
  plan.seeds = {0};
  plan.rows.resize(1);
  fs::create_directories(folder / "out/runs/ape/seed-0");
  const auto lock = io::FolderLock::take(folder / "out/runs/ape/seed-0");
  RunCounter counter;
  const auto stop = [&] { return counter.waiting_for_ > 0; };
  EXPECT_FALSE(compare(plan, folder / "out", counter, stop).finished);
  EXPECT_EQ(counter.steps_, 0);
}

}  // namespace
}  // namespace sape2::study
