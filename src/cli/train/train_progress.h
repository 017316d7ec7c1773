#pragma once

#include "sape2/train/trainer.h"

#include <chrono>
#include <string>

namespace sape2::cli {

/// Shows how a training run goes on: on a terminal one line that is rewritten and one that stays
/// for each epoch, elsewhere plain lines only, a few each minute.
class TrainProgress : public train::Observer {
 public:
  TrainProgress();
  ~TrainProgress() override;

  void step_done(const train::StepReport& report) override;
  void start_tested(const train::TestRecord& test) override;
  void epoch_done(const train::EpochRecord& record, int64_t epochs) override;
  void note(const std::string& sentence) override;

 private:
  void print_line(const std::string& text);

  bool rewrites_;
  bool line_is_open_ = false;
  std::chrono::steady_clock::time_point last_shown_{};
};

}  // namespace sape2::cli
