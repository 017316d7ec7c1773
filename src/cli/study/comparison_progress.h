#pragma once

#include "sape2/study/comparison.h"

#include "cli/train/train_progress.h"

#include <string>

namespace sape2::cli {

/// Shows how a comparison goes on: a line for every run, and below it what TrainProgress shows.
class ComparisonProgress : public study::ComparisonObserver {
 public:
  void run_begins(const std::string& what, std::int64_t number, std::int64_t total,
                  bool has_result) override;
  void run_ended(const std::string& what, const study::RunResult& result) override;
  void run_failed(const std::string& what, const std::string& reason) override;
  void waits(std::int64_t runs) override;
  void step_done(const train::StepReport& report) override { run_.step_done(report); }
  void epoch_done(const train::EpochRecord& record, std::int64_t epochs) override {
    run_.epoch_done(record, epochs);
  }
  void start_tested(const train::TestRecord& test) override { run_.start_tested(test); }
  void note(const std::string& sentence) override { run_.note(sentence); }

 private:
  TrainProgress run_;
  std::string trained_already_;  // the line of a run that has its result; empty: it is trained here
};

}  // namespace sape2::cli
