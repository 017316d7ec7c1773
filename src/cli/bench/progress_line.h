#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace sape2::cli {

/// Progress over a known number of steps, on standard error: one line that is rewritten on a
/// terminal, one line a step elsewhere. Says what is under way and how much time is left.
class ProgressLine {
 public:
  ProgressLine(std::string title, std::size_t steps);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// The next step begins.
  void begin(const std::string& what);

 private:
  std::string title_;
  std::size_t steps_;
  std::size_t begun_ = 0;
  bool rewrites_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sape2::cli
