#pragma once

#include "sape2/study/comparison.h"

#include <chrono>
#include <string>

namespace sape2::cli {

/// Shows how a comparison goes on: one living line on a terminal, a line an epoch elsewhere.
class ComparisonProgress : public study::ComparisonObserver {
 public:
  ComparisonProgress();

  void run_begins(const nn::EncodingSpec& encoding, std::uint64_t seed, std::int64_t number,
                  std::int64_t total, bool reused) override;
  void run_ended(const nn::EncodingSpec& encoding, const study::RunResult& result) override;
  void step_done(const train::StepReport& report) override;
  void epoch_done(const train::EpochRecord& record, std::int64_t epochs) override;
  void note(const std::string& sentence) override;

 private:
  void line(const std::string& text);
  void living_line(const std::string& text);

  bool living_;
  bool line_open_ = false;
  bool reused_ = false;
  std::string run_;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace sape2::cli
