#pragma once

#include "sape2/train/trainer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sape2::train::test {

/// Keeps what it is told.
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

/// One session of a run: the folder is opened or made, trained in, and closed.
struct Session {
  Recorder recorder;
  RunSummary summary;
};

constexpr int64_t kTrainImages = 160, kTestImages = 60;

/// A session on corners(kTrainImages, 1), tested on corners(kTestImages, 2). `stop_after`: how many
/// steps it takes at most; `poison_from`: from this batch on, images are not numbers.
Session train(const std::filesystem::path& path, const RunConfig& config, int64_t stop_after = -1,
              int64_t poison_from = -1);

/// The log of a run without the times, which no two runs share.
std::string comparable_log(const std::filesystem::path& path);

/// The models and comparable logs of two runs.
void expect_same_result(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace sape2::train::test
