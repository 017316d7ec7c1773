#include "cli/bench/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace sape2::cli {

ProgressLine::ProgressLine(std::string title, std::size_t steps)
    : title_(std::move(title)), steps_(steps), rewrites_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (rewrites_ && begun_ > 0) std::fputs("\r\033[K", stderr);
}

void ProgressLine::begin(const std::string& what) {
  const double spent =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string left;
  if (begun_ > 0) {
    const double each = spent / static_cast<double>(begun_);
    left = fmt::format(", about {:.0f} s left", each * static_cast<double>(steps_ - begun_));
  }
  ++begun_;
  fmt::print(stderr, "{}{} [{}/{}] {}{}{}", rewrites_ ? "\r" : "", title_, begun_, steps_, what,
             left, rewrites_ ? "\033[K" : "\n");
  std::fflush(stderr);
}

}  // namespace sape2::cli
