#pragma once

#include "sape2/study/comparison.h"

#include "cli/train_progress.h"

#include <string>

namespace sape2::cli {

/// Shows how a comparison goes on: a line for every run, and below it what TrainProgress shows.
class ComparisonProgress : public study::ComparisonObserver {
 public:
  void run_begins(const nn::EncodingSpec& encoding, std::uint64_t seed, std::int64_t number,
                  std::int64_t total, bool reused) override;
  void run_ended(const nn::EncodingSpec& encoding, const study::RunResult& result) override;
  void step_done(const train::StepReport& report) override { run_.step_done(report); }
  void epoch_done(const train::EpochRecord& record, std::int64_t epochs) override {
    run_.epoch_done(record, epochs);
  }
  void note(const std::string& sentence) override { run_.note(sentence); }

 private:
  TrainProgress run_;
  bool reused_ = false;
};

}  // namespace sape2::cli
