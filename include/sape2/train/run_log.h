#pragma once

#include "sape2/train/figures.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// The log of a run, log.jsonl in its folder: one JSON object a line, `"kind"` "step" or "epoch";
/// "start", epoch 0, in a run that starts from a trained model.
namespace sape2::train {

/// A few steps of training: means since the line before.
struct StepRecord {
  int64_t epoch = 0;  ///< from 1
  int64_t step = 0;   ///< steps done in all
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  ///< of the last of them, before clipping
  double images_per_second = 0;
  double seconds = 0;  ///< of training so far, all sessions together
};

/// What was measured on the test images.
struct TestRecord {
  double loss = 0;
  Figures figures;
};

/// The end of an epoch.
struct EpochRecord {
  int64_t epoch = 0;
  int64_t step = 0;
  double train_loss = 0;
  std::optional<TestRecord> test;  ///< nothing in epochs that are not evaluated
  double seconds = 0;
};

struct RunHistory {
  std::optional<TestRecord> start;  ///< of a trained model, before the first step
  std::vector<StepRecord> steps;
  std::vector<EpochRecord> epochs;
};

/// What a log says; a missing file is an empty history, and a line cut off by a crash is left out.
/// A file that cannot be read is an Error.
RunHistory read_log(const std::filesystem::path& file);

/// The lines of the log.
std::string to_json_line(const StepRecord& record);
std::string to_json_line(const EpochRecord& record);
std::string to_json_line(const TestRecord& start);

}  // namespace sape2::train
