#pragma once

#include "sape2/data/get.h"

#include <chrono>
#include <string>

namespace sape2::cli {

/// Shows on standard error how a download goes on: one line that changes on a terminal, a line for
/// each tenth elsewhere.
class DataProgress : public data::GetObserver {
 public:
  DataProgress();
  ~DataProgress() override;

  void note(const std::string& line) override;
  void progress(const std::string& what, std::uint64_t done, std::uint64_t total) override;

 private:
  using Clock = std::chrono::steady_clock;

  void end_line();

  bool on_terminal_;
  bool line_open_ = false;
  std::string what_;
  std::uint64_t first_ = 0;  ///< bytes that were there when the transfer began
  std::uint64_t last_tenth_ = 0;
  Clock::time_point start_, shown_;
};

/// "45 %, 76 of 170 MB, 12.3 MB/s, 8 s left"; without rate and time where `seconds` is 0.
std::string progress_text(std::uint64_t done, std::uint64_t total, std::uint64_t fetched,
                          double seconds);

}  // namespace sape2::cli
