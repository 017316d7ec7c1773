#include "sape2/data/image.h"
#include "sape2/train/run.h"
#include "sape2/train/run_config.h"
#include "sape2/train/run_log.h"

#include "cli/run_sape2.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using cli::test::Arguments;
using cli::test::expect_mistake;
using cli::test::run_sape2;
using namespace sape2::testing;

constexpr int kKills = 12;

// Pictures of four colours in noise, as class folders.
class TinyFolder {
 public:
  TinyFolder() {
    std::mt19937 random(1);
    for (int label = 0; label < 4; ++label) {
      for (const auto& [split, count] : {std::pair("train", 16), std::pair("test", 8)}) {
        const fs::path folder = folder_.path() / split / ("colour" + std::to_string(label));
        fs::create_directories(folder);
        for (int i = 0; i < count; ++i) write(folder, label, i, random);
      }
    }
  }

  std::string name() const { return "folder:" + folder_.path().native(); }

 private:
  static void write(const fs::path& folder, int label, int i, std::mt19937& random) {
    data::Image image{16, 16, 3, std::vector<uint8_t>(16 * 16 * 3)};
    for (size_t at = 0; at < image.pixels.size(); ++at) {
      const bool bright = label == 3 || static_cast<int>(at % 3) == label;
      image.pixels[at] = static_cast<uint8_t>(random() % 150 + (bright ? 100 : 0));
    }
    data::write_png(folder / (std::to_string(i) + ".png"), image);
  }

  ScratchFolder folder_;
};

const TinyFolder& tiny_folder() {
  static const TinyFolder folder;
  return folder;
}

// 8 steps of a very small model, a checkpoint after each; more can be added, and changed.
Arguments train_arguments(const Arguments& more = {}) {
  // clang-format off
  Arguments arguments{
      "train", "--threads", "1", "--data", tiny_folder().name(), "--image-size", "16",
      "--depth", "2", "--width", "16", "--heads", "2", "--patch-size", "4",
      "--batch-size", "16", "--epochs", "2", "--stochastic-depth", "0.2", "--ema-decay", "0.9",
      "--log-steps", "1", "--checkpoint-steps", "1"};
  // clang-format on
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// A process that can be killed; its output goes nowhere.
class Process {
 public:
  enum class Streams { to_nowhere, closed };

  explicit Process(const Arguments& arguments, Streams streams = Streams::to_nowhere)
      : id_(::fork()) {
    if (id_ != 0) return;
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    if (streams == Streams::closed) {
      for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
    }
    std::vector<char*> pointers{const_cast<char*>(SAPE2_PROGRAM)};
    for (const std::string& text : arguments) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    ::execv(SAPE2_PROGRAM, pointers.data());
    ::_exit(127);
  }

  void send(int signal) const { ::kill(id_, signal); }

  int wait() const {
    int status = 0;
    ::waitpid(id_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t id_;
};

void wait_until_file(const fs::path& file) {
  for (int i = 0; i < 3000 && !fs::exists(file); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST(TrainCommand, TrainsAndReports) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  const auto outcome = run_sape2(train_arguments({"--out", run}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("epoch 2/2  training loss [0-9.]+  test "
                                                        "loss [0-9.]+  top-1 [0-9.]+ %")))
      << outcome.out;
  EXPECT_NE(outcome.out.find("best top-1"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find('\r'), std::string::npos) << "a rewritten line where no terminal is";
  EXPECT_EQ(read_log(run / "log.jsonl").epochs.size(), 2u);
  const RunConfig config = run_config_from_json(file_bytes(run / "config.json"), "config.json");
  EXPECT_EQ(config.recipe.stochastic_depth, 0.2);
  EXPECT_EQ(config.model.vit.stochastic_depth, 0.2);
  EXPECT_EQ(config.threads, 1);
}

TEST(TrainCommand, ShowsALiveLineOnATerminal) {
  if (!cli::test::has_terminals()) GTEST_SKIP() << "there are no pseudo-terminals here";
  const ScratchFolder scratch;
  const auto outcome =
      cli::test::run_sape2_on_terminal(train_arguments({"--out", scratch / "run"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(std::regex_search(
      outcome.out, std::regex("\repoch 1/2  step 1/8  loss [0-9.]+  rate [0-9.e-]+  [0-9]+ "
                              "images/s  [0-9.]+ (s|min) left")))
      << outcome.out;
}

TEST(TrainCommand, KilledAtAnyMomentItGoesOnExactly) {
  const ScratchFolder scratch;
  const fs::path whole = scratch / "whole", run = scratch / "run";
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_sape2(train_arguments({"--out", whole})).exit_code, 0);
  const auto duration = std::chrono::steady_clock::now() - start;

  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<double> share(0.3, 1);
  int kills = 0;
  for (int i = 0; i < kKills; ++i) {
    const Process process(fs::exists(run / "config.json") ? Arguments{"train", "--resume", run}
                                                          : train_arguments({"--out", run}));
    std::this_thread::sleep_for(duration * share(random));
    process.send(SIGKILL);
    kills += process.wait() == 128 + SIGKILL;
  }
  EXPECT_GT(kills, 0);
  const auto last = fs::exists(run / "config.json") ? run_sape2({"train", "--resume", run})
                                                    : run_sape2(train_arguments({"--out", run}));
  EXPECT_EQ(last.exit_code, 0) << last.err;
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    EXPECT_TRUE(file_bytes(whole / name) == file_bytes(run / name)) << name << " differs";
  }
  EXPECT_EQ(read_log(run / "log.jsonl").steps.size(), 8u);
  for (const fs::path& folder : {run, run / "checkpoints"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      EXPECT_FALSE(entry.path().filename().native().ends_with(".tmp")) << entry.path();
    }
  }
}

TEST(TrainCommand, CtrlCSavesAndSaysHowToGoOn) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  const Process process(train_arguments({"--epochs", "5000", "--out", run}));
  wait_until_file(run / "best.safetensors");
  process.send(SIGINT);
  EXPECT_EQ(process.wait(), 130);
  const auto again = Process({"train", "--resume", run});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  again.send(SIGTERM);
  const int code = again.wait();
  EXPECT_TRUE(code == 130 || code == 128 + SIGTERM) << code;
}

TEST(TrainCommand, AResumedRunKeepsItsConfiguration) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  ASSERT_EQ(run_sape2(train_arguments({"--out", run})).exit_code, 0);
  expect_mistake(run_sape2({"train", "--resume", run, "--epochs", "9"}), 1, "leave out --epochs");
  expect_mistake(run_sape2({"train", "--resume", run, "--data", "shapes"}), 1, "--data");
  expect_mistake(run_sape2(train_arguments({"--out", run})), 1, "holds a run already");
  EXPECT_EQ(run_sape2({"train", "--resume", run}).exit_code, 0);
}

TEST(TrainCommand, RestartMovesTheRunAside) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  ASSERT_EQ(run_sape2(train_arguments({"--out", run})).exit_code, 0);
  const std::string best = file_bytes(run / "best.safetensors");
  fs::remove_all(run / "checkpoints");
  expect_mistake(run_sape2({"train", "--resume", run}), 1, "add --restart");
  EXPECT_EQ(read_log(run / "log.jsonl").steps.size(), 8u);
  const auto outcome = run_sape2({"train", "--resume", run, "--restart"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("aside-1"), std::string::npos) << outcome.out;
  EXPECT_EQ(file_bytes(run / "aside-1/best.safetensors"), best);
  EXPECT_EQ(file_bytes(run / "best.safetensors"), best);
  EXPECT_EQ(read_log(run / "log.jsonl").steps.size(), 8u);
  expect_mistake(run_sape2(train_arguments({"--restart"})), 1, "--resume");
}

TEST(TrainCommand, ClosedStreamsLeaveTheFilesAlone) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  EXPECT_EQ(Process(train_arguments({"--out", run}), Process::Streams::closed).wait(), 0);
  std::istringstream log(file_bytes(run / "log.jsonl"));
  int lines = 0;
  for (std::string line; std::getline(log, line); ++lines) {
    EXPECT_TRUE(line.starts_with(R"({"kind":)")) << line;
  }
  EXPECT_EQ(lines, 8 + 2);
  EXPECT_EQ(run_sape2({"eval", run, "--data", tiny_folder().name(), "--size", "16"}).exit_code, 0);
}

TEST(TrainCommand, AnAbsurdNumberOfThreadsIsRefused) {
  const ScratchFolder scratch;
  const fs::path run = scratch / "run";
  ASSERT_EQ(run_sape2(train_arguments({"--epochs", "1", "--out", run})).exit_code, 0);
  std::string config = file_bytes(run / "config.json");
  const std::string before = "\"threads\": 1";
  config.replace(config.find(before), before.size(), "\"threads\": 5000");
  write_bytes(run / "config.json", config);
  expect_mistake(run_sape2({"train", "--resume", run}), 1, "threads is 5000, expected 0 … 1024");
}

TEST(TrainCommand, GoesOnFromAnyFolder) {
  const ScratchFolder scratch;
  const fs::path data = tiny_folder().name().substr(std::string("folder:").size());
  const fs::path before = fs::current_path();
  fs::current_path(data.parent_path());
  const fs::path run = scratch / "run";
  const auto begun = run_sape2(train_arguments(
      {"--data", "folder:./" + data.filename().native(), "--epochs", "1", "--out", run}));
  fs::current_path(before);
  EXPECT_EQ(begun.exit_code, 0) << begun.err;
  const RunConfig config = run_config_from_json(file_bytes(run / "config.json"), "config.json");
  EXPECT_EQ(config.data.name, tiny_folder().name());
  const auto again = run_sape2({"train", "--resume", run});
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

TEST(RunData, OlderRunsFindTheirFolderFromTheRun) {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "work/photos");
  fs::create_directories(scratch / "work/runs/first");
  const DataConfig config{.name = "folder:photos", .root = "photos"};
  const DataConfig found = data_of_run(config, scratch / "work/runs/first");
  EXPECT_EQ(found.name, "folder:" + (scratch / "work/photos").native());
  EXPECT_EQ(found.root, (scratch / "work/photos").native());
  EXPECT_EQ(data_of_run({.name = "cifar10"}, scratch / "work/runs/first").name, "cifar10");
  EXPECT_EQ(data_of_run({.name = "folder:no such"}, scratch.path()).name, "folder:no such");
}

struct Mistake {
  Arguments arguments;
  std::string part;
};

class TrainMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(TrainMistake, IsOneSentence) {
  const ScratchFolder scratch;
  Arguments arguments = train_arguments({"--out", scratch / "run"});
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const auto outcome = run_sape2(arguments);
  expect_mistake(outcome, outcome.exit_code, GetParam().part);
  EXPECT_TRUE(outcome.exit_code == 1 || outcome.exit_code == 2) << outcome.exit_code;
  EXPECT_FALSE(fs::exists(scratch / "run"));
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainMistake,
    ::testing::Values(Mistake{{"--learning-rate", "fast"}, "learning_rate is \"fast\""},
                      Mistake{{"--recipe", "papre"}, "the nearest is \"paper\""},
                      Mistake{{"--encoding", "sape3-k"}, "sape3-k"},
                      Mistake{{"--model", "vit-tinny"}, "vit-tiny"},
                      Mistake{{"--data", "cifar11"}, "cifar1"}, Mistake{{"--heads", "3"}, "heads"},
                      Mistake{{"--patch-size", "5"}, "5"},
                      Mistake{{"--batch-size", "0"}, "batch_size is 0"},
                      Mistake{{"--accumulation", "3"}, "accumulation = 3"},
                      Mistake{{"--warmup-epochs", "3"}, "warmup_epochs is 3"},
                      Mistake{{"--precision", "bfloat16"}, "needs a GPU"},
                      Mistake{{"--device", "gpu"}, "device \"gpu\""},
                      Mistake{{"--learnign-rate", "1"}, "--learning-rate"},
                      Mistake{{"--init", "/no/such.safetensors"}, "/no/such.safetensors"},
                      Mistake{{"--seed", "minus one"}, "seed"}));

TEST(TrainCommand, OtherMistakesAreOneSentence) {
  expect_mistake(run_sape2({"train"}), 1, "--data is missing");
  expect_mistake(run_sape2({"train", "--resume", "/no/such/run"}), 1, "/no/such/run");
}

}  // namespace
}  // namespace sape2::train::test
