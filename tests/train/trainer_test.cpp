#include "sape2/train/trainer.h"

#include "sape2/io/checksum.h"
#include "sape2/io/model_file.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <map>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

constexpr int64_t kTrainImages = 160, kTestImages = 60;

class Recorder : public Observer {
 public:
  void step_done(const StepReport& report) override { steps.push_back(report); }
  void epoch_done(const EpochRecord& record, int64_t) override { epochs.push_back(record); }
  void start_tested(const TestRecord& test) override { started = test; }
  void note(const std::string& sentence) override { notes.push_back(sentence); }

  std::vector<StepReport> steps;
  std::vector<EpochRecord> epochs;
  std::vector<std::string> notes;
  std::optional<TestRecord> started;
};

// One session of a run: the folder is opened or made, trained in, and closed.
struct Session {
  Recorder recorder;
  RunSummary summary;
};

Session train(const fs::path& path, const RunConfig& config, int64_t stop_after = -1,
              int64_t poison_from = -1) {
  Session session;
  ShuffledSource source(corners(kTrainImages, 1), config.recipe.batch_size, config.seed);
  if (poison_from >= 0) source.poison_from(poison_from);
  const data::Dataset test = corners(kTestImages, 2);
  RunFolder folder =
      fs::exists(path / "config.json") ? RunFolder::open(path) : RunFolder::create(path, config);
  Trainer trainer(std::move(folder), source, test, session.recorder);
  int64_t done = 0;
  session.summary = trainer.run([&] { return ++done == stop_after; });
  return session;
}

// A log without the times, which no two runs share.
std::string comparable_log(const fs::path& path) {
  std::string text;
  const RunHistory history = read_log(path / "log.jsonl");
  for (StepRecord record : history.steps) {
    record.seconds = record.images_per_second = 0;
    text += to_json_line(record);
  }
  for (EpochRecord record : history.epochs) {
    record.seconds = 0;
    text += to_json_line(record);
  }
  return text;
}

void expect_same_result(const fs::path& one, const fs::path& other) {
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    EXPECT_TRUE(file_bytes(one / name) == file_bytes(other / name)) << name << " differs";
  }
  EXPECT_EQ(comparable_log(one), comparable_log(other));
}

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

TEST(Trainer, StartsFromAModelFile) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.model.encoding = nn::EncodingSpec::parse("ape");
  config.recipe.epochs = 8;
  const Session first = train(scratch / "first", config);
  const double reached = main_figure(first.summary.last->test->figures);

  config.init = (scratch / "first/last.safetensors").native();
  config.init_checksum = io::content_checksum(config.init);
  config.model.encoding = nn::EncodingSpec::parse("sape2-rel-k+ape");
  config.recipe.epochs = 1;
  const Session second = train(scratch / "second", config);
  const RunHistory history = read_log(scratch / "second/log.jsonl");
  ASSERT_TRUE(history.start);
  EXPECT_EQ(main_figure(history.start->figures), reached);
  EXPECT_EQ(main_figure(second.recorder.started->figures), reached);
  EXPECT_GE(second.summary.best, reached);
  ASSERT_FALSE(second.recorder.notes.empty());
  expect_contains(second.recorder.notes.front(), "last.safetensors (ape)");
  expect_contains(second.recorder.notes.back(), "the model computes what it did before");

  config.model.encoding = nn::EncodingSpec::parse("sape2-rel-k");
  const Session dropped = train(scratch / "dropped", config);
  expect_contains(dropped.recorder.notes.back(), "the learnt vectors of ape are dropped");
  config.model.encoding = nn::EncodingSpec::parse("rope2d+ape");
  expect_contains(train(scratch / "turned", config).recorder.notes.back(), "acts from the start");
}

TEST(Trainer, NeedsTheFileItStartedFromOnlyOnce) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.recipe.epochs = 1;
  train(scratch / "first", config);
  fs::copy(scratch / "first/last.safetensors", scratch / "model.safetensors");
  config.init = (scratch / "model.safetensors").native();
  config.init_checksum = io::content_checksum(config.init);
  train(scratch / "whole", config);
  EXPECT_EQ(train(scratch / "run", config, /*stop_after=*/1).summary.step, 1);
  fs::remove(config.init);
  EXPECT_TRUE(train(scratch / "run", config).summary.finished);
  expect_same_result(scratch / "whole", scratch / "run");
  EXPECT_TRUE(read_log(scratch / "run/log.jsonl").start);

  // A run that begins again does need it, and no other.
  RunFolder::open(scratch / "run").restart();
  expect_contains(error_text([&] { train(scratch / "run", config); }), "model.safetensors");
  RunConfig other = tiny_run();
  other.seed = 8;
  other.recipe.epochs = 1;
  train(scratch / "second", other);
  fs::copy(scratch / "second/last.safetensors", config.init);
  expect_contains(error_text([&] { train(scratch / "run", config); }),
                  "is not the file that this run was begun with");
  config.init_checksum = std::string(100'000, 'x');
  EXPECT_LT(error_text([&] { train(scratch / "third", config); }).size(), 1000u);
}

TEST(Trainer, RefusesToStartFromWhatIsNoModel) {
  const ScratchFolder scratch;
  RunConfig config = tiny_run();
  config.recipe.epochs = 1;
  train(scratch / "first", config);
  const auto refused = [&](const fs::path& run) {
    return error_text([&] { train(scratch / run.native(), config); });
  };
  config.init = (scratch / "nothing.safetensors").native();
  expect_contains(refused("second"), "nothing.safetensors");
  config.init = (scratch / "nan.safetensors").native();
  auto weights = io::load_tensors(scratch / "first/last.safetensors");
  weights.at("head.bias")[0] = std::numeric_limits<float>::quiet_NaN();
  io::save_tensors(config.init, weights);
  EXPECT_NE(refused("third"), "");
  config.init = (scratch / "first/last.safetensors").native();
  config.model.vit.depth = 3;
  expect_contains(refused("fourth"), "the trained model has depth 2, but a model with depth 3");
}

TEST(RunFolder, IsNeverOverwritten) {
  const ScratchFolder scratch;
  { RunFolder::create(scratch / "run", tiny_run()); }
  expect_contains(error_text([&] { RunFolder::create(scratch / "run", tiny_run()); }), "--resume");
  for (const char* name : {"log.jsonl", "last.safetensors", "checkpoints/step-1.safetensors"}) {
    const fs::path folder = scratch / fs::path(name).filename().native();
    fs::create_directories(folder / "checkpoints");
    write_bytes(folder / name, "x");
    expect_contains(error_text([&] { RunFolder::create(folder, tiny_run()); }), "files of a run");
    EXPECT_FALSE(fs::exists(folder / "config.json"));
  }
}

TEST(RunFolder, BelongsToOneProcessAtATime) {
  const ScratchFolder scratch;
  const RunFolder held = RunFolder::create(scratch / "run", tiny_run());
  expect_contains(error_text([&] { RunFolder::open(scratch / "run"); }), "another process");
}

TEST(RunFolder, MustBeOne) {
  const ScratchFolder scratch;
  expect_contains(error_text([&] { RunFolder::open(scratch.path()); }), "config.json");
  expect_contains(error_text([&] { RunFolder::open(scratch / "absent"); }), "absent");
  write_bytes(scratch / "file", "x");
  expect_contains(error_text([&] { RunFolder::create(scratch / "file", tiny_run()); }), "file");
}

}  // namespace
}  // namespace sape2::train::test
