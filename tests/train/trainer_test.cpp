#include "sape2/train/trainer.h"

#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/session.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

TEST(Trainer, LearnsAndLeavesACompleteFolder) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  RunConfig config = tiny_run();
  config.recipe.epochs = 8;
  const Session session = train(run, config);
  EXPECT_TRUE(session.summary.finished);
  EXPECT_EQ(session.summary.step, 80);
  ASSERT_EQ(session.recorder.epochs.size(), 8u);
  EXPECT_EQ(session.recorder.steps.size(), 80u);
  EXPECT_LT(session.recorder.epochs.back().train_loss,
            0.6 * session.recorder.epochs.front().train_loss);
  EXPECT_GT(session.summary.best, 0.8);
  EXPECT_GT(session.summary.checkpoint_share, 0);
  EXPECT_LT(session.summary.checkpoint_share, 1);

  for (const char* name : {"config.json", "log.jsonl", "best.safetensors", "last.safetensors"}) {
    EXPECT_TRUE(fs::exists(run / name)) << name;
  }
  EXPECT_EQ(run_config_from_json(file_bytes(run / "config.json"), "config.json"), config);
  const RunHistory history = read_log(run / "log.jsonl");
  EXPECT_EQ(history.epochs.size(), 8u);
  EXPECT_EQ(history.steps.size(), 26u);  // every 3 of 80 steps
  EXPECT_EQ(std::distance(fs::directory_iterator(run / "checkpoints"), fs::directory_iterator()),
            2);

  // The file alone gives the accuracy that was logged.
  const auto model = io::load_model(run / "last.safetensors");
  const Evaluation result = evaluate(*model, corners(kTestImages, 2));
  EXPECT_EQ(result.top1, figure_of(history.epochs.back().test->figures, "top1"));
  EXPECT_NEAR(result.loss, history.epochs.back().test->loss, 1e-6);
}

TEST(Trainer, IsDeterministicBySeed) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  train(scratch / "a", config);
  at::manual_seed(12345);  // must not matter
  train(scratch / "b", config);
  expect_same_result(scratch / "a", scratch / "b");
  config.seed = 8;
  train(scratch / "c", config);
  EXPECT_NE(comparable_log(scratch / "a"), comparable_log(scratch / "c"));
}

TEST(Trainer, GoesOnExactlyAfterAStopAtAnyStep) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  train(scratch / "whole", config);
  for (const int64_t stop : {1, 4, 10, 13, 29}) {
    const fs::path run = scratch / ("stopped" + std::to_string(stop));
    const Session first = train(run, config, stop);
    EXPECT_FALSE(first.summary.finished);
    EXPECT_EQ(first.summary.step, stop);
    const Session second = train(run, config);
    EXPECT_TRUE(second.summary.finished);
    EXPECT_EQ(second.recorder.steps.size(), static_cast<size_t>(30 - stop));
    expect_same_result(scratch / "whole", run);
  }
}

TEST(Trainer, GoesOnFromAnOlderCheckpointWithALongerLog) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  train(scratch / "whole", config);
  const fs::path run = scratch / "run";
  train(run, config, 17);
  // As after a power cut: the newest checkpoint is lost, and the log's last line is torn.
  fs::remove(run / "checkpoints/step-000000017.safetensors");
  std::ofstream(run / "log.jsonl", std::ios::app) << R"({"kind":"step","epoch":2,"st)";
  train(run, config);
  expect_same_result(scratch / "whole", run);
}

// Every file below a folder by its name, with its bytes.
std::map<std::string, std::string> files_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[fs::relative(entry.path(), folder)] = file_bytes(entry.path());
    }
  }
  return files;
}

const std::string kNewest = "checkpoints/step-000000017.safetensors";

TEST(Trainer, DamagedCheckpointsAreNamedAndTheOneBeforeIsUsed) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  train(scratch / "whole", config);
  const std::string newest = kNewest;

  for (const std::string damage : {"truncated", "torn", "empty"}) {
    const fs::path run = scratch / damage;
    train(run, config, 17);
    std::string bytes = file_bytes(run / newest);
    if (damage == "truncated") bytes.resize(bytes.size() / 2);
    if (damage == "torn") bytes.replace(bytes.size() / 2, 512, std::string(512, '\0'));
    if (damage == "empty") bytes.clear();
    write_bytes(run / newest, bytes);
    const Session session = train(run, config);
    ASSERT_GE(session.recorder.notes.size(), 2u);
    expect_contains(session.recorder.notes[0], "step-000000017.safetensors");
    expect_contains(session.recorder.notes[1], "going on after step 15");
    expect_same_result(scratch / "whole", run);
  }
}

TEST(Trainer, ACheckpointOfAnotherConfigurationStaysWhereItIs) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  const fs::path run = scratch / "run";
  train(scratch / "whole", config);
  train(run, config, 17);
  const std::string before = file_bytes(run / "config.json");
  RunConfig edited = config;
  edited.recipe.learning_rate *= 2;
  write_bytes(run / "config.json", to_json(edited));
  const auto files = files_below(run);
  for (int i = 0; i < 2; ++i) {
    const std::string text = error_text([&] { train(run, config); });
    expect_contains(text, "step-000000017.safetensors");
    expect_contains(text, "config.json");
    EXPECT_TRUE(files_below(run) == files) << "a refusal changed the folder";
  }
  write_bytes(run / "config.json", before);
  const Session session = train(run, config);
  EXPECT_EQ(session.recorder.steps.size(), 13u);
  expect_same_result(scratch / "whole", run);
}

TEST(Trainer, ACheckpointThatCannotBeReadStaysWhereItIs) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  const fs::path run = scratch / "run";
  train(scratch / "whole", config);
  train(run, config, 17);
  // As on a disk that is not mounted now.
  fs::rename(run / kNewest, scratch / "elsewhere");
  fs::create_symlink(scratch / "not mounted", run / kNewest);
  const auto files = files_below(run);
  expect_contains(error_text([&] { train(run, config); }), "step-000000017.safetensors");
  EXPECT_TRUE(fs::is_symlink(run / kNewest));
  EXPECT_TRUE(files_below(run) == files) << "a refusal changed the folder";
  fs::rename(scratch / "elsewhere", run / kNewest);
  train(run, config);
  expect_same_result(scratch / "whole", run);
}

TEST(Trainer, BeginsAtStepZeroOnlyIfAsked) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  const fs::path run = scratch / "run";
  train(run, config);
  fs::remove_all(run / "checkpoints");
  fs::create_directory(run / "checkpoints");
  const auto files = files_below(run);
  for (int i = 0; i < 2; ++i) {
    const std::string text = error_text([&] { train(run, config); });
    expect_contains(text, "log.jsonl, best.safetensors, last.safetensors");
    expect_contains(text, "--restart");
    EXPECT_TRUE(files_below(run) == files) << "a refusal changed the folder";
  }
  EXPECT_EQ(RunFolder::open(run).restart(), run / "aside-1");
  EXPECT_EQ(train(run, config).recorder.steps.size(), 30u);
  expect_same_result(run / "aside-1", run);
  EXPECT_EQ(RunFolder::open(run).restart(), run / "aside-2");
  // With its checkpoints, what was moved aside can be gone on with.
  EXPECT_TRUE(train(run / "aside-2", config).recorder.steps.empty());
}

TEST(Trainer, ARunCutOffBeforeItsFirstCheckpointBeginsAnew) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.recipe.checkpoint_steps = 0;
  config.recipe.log_steps = 1;
  error_text([&] { train(scratch / "run", config, -1, 8); });
  EXPECT_EQ(read_log(scratch / "run/log.jsonl").steps.size(), 8u);
  EXPECT_EQ(train(scratch / "run", config).recorder.steps.size(), 30u);
  train(scratch / "whole", config);
  expect_same_result(scratch / "whole", scratch / "run");
}

TEST(Trainer, SaysSoIfNoCheckpointCanBeUsed) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  train(scratch / "run", config, 17);
  for (const auto& file : fs::directory_iterator(scratch / "run/checkpoints")) {
    write_bytes(file.path(), "nothing of use");
  }
  const std::string log = file_bytes(scratch / "run/log.jsonl");
  for (int i = 0; i < 2; ++i) {
    const std::string text = error_text([&] { train(scratch / "run", config); });
    expect_contains(text, "no checkpoint that can be used");
    expect_contains(text, "step-000000017.safetensors.refused");
  }
  EXPECT_EQ(file_bytes(scratch / "run/log.jsonl"), log);
}

TEST(Trainer, AFinishedRunHasNothingLeftToDo) {
  const ScratchFolder scratch;
  train(scratch / "run", tiny_run());
  const Session again = train(scratch / "run", tiny_run());
  EXPECT_TRUE(again.summary.finished);
  EXPECT_TRUE(again.recorder.steps.empty());
  ASSERT_TRUE(again.summary.last);
  EXPECT_EQ(again.summary.last->epoch, 3);
}

TEST(Trainer, StopsWhereTheLossIsNoNumber) {
  const ScratchFolder scratch;
  const RunConfig config = tiny_run();
  const std::string text = error_text([&] { train(scratch / "run", config, -1, 12); });
  expect_contains(text, "the loss is not a finite number at step 13 (epoch 2)");
  expect_contains(text, "learning rate 0.00");
  expect_contains(text, "--clip-norm");
  // Nothing of it was saved: with sound images the run goes on to the usual end.
  train(scratch / "run", config);
  train(scratch / "whole", config);
  expect_same_result(scratch / "whole", scratch / "run");
}

TEST(Trainer, EvaluatesOnlyWhenDueButAlwaysAtTheEnd) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.recipe.evaluate_epochs = 2;
  const Session session = train(scratch / "run", config);
  ASSERT_EQ(session.recorder.epochs.size(), 3u);
  EXPECT_FALSE(session.recorder.epochs[0].test);
  EXPECT_TRUE(session.recorder.epochs[1].test);
  EXPECT_TRUE(session.recorder.epochs[2].test);
}

}  // namespace
}  // namespace sape2::train::test
