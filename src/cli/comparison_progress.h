#pragma once

#include "sape2/study/comparison.h"

#include "cli/train_progress.h"

#include <string>

namespace sape2::cli {

/// Shows how a comparison goes on: a line for every run, and below it what TrainProgress shows,
/// each line with the number of its run.
class ComparisonProgress : public study::ComparisonObserver {
 public:
  void run_begins(const study::ComparisonRun& run) override;
  void step_done(const study::ComparisonRun& run, const train::StepReport& report) override;
  void epoch_done(const study::ComparisonRun& run, const train::EpochRecord& record,
                  std::int64_t epochs) override;
  void note(const study::ComparisonRun& run, const std::string& sentence) override;
  void run_ended(const study::ComparisonRun& run, const study::RunResult& result) override;

 private:
  TrainProgress lines_;
};

}  // namespace sape2::cli
