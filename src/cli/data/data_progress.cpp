#include "cli/data/data_progress.h"

#include "sape2/base/in_quotes.h"

#include "cli/duration_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace sape2::cli {
namespace {

constexpr double kMegabyte = 1e6;
constexpr std::chrono::milliseconds kBetweenUpdates{100};

}  // namespace

std::string progress_text(std::uint64_t done, std::uint64_t total, std::uint64_t fetched,
                          double seconds) {
  std::string text =
      fmt::format("{} %, {:.0f} of {:.0f} MB", total > 0 ? done * 100 / total : 100,
                  static_cast<double>(done) / kMegabyte, static_cast<double>(total) / kMegabyte);
  if (seconds > 0 && fetched > 0) {
    const double rate = static_cast<double>(fetched) / seconds;
    text += fmt::format(", {:.1f} MB/s, {} left", rate / kMegabyte,
                        duration_text(static_cast<double>(total - done) / rate));
  }
  return text;
}

DataProgress::DataProgress() : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

DataProgress::~DataProgress() {
  end_line();
}

void DataProgress::end_line() {
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

void DataProgress::note(const std::string& line) {
  end_line();
  std::fprintf(stderr, "%s\n", printable(line).c_str());
}

void DataProgress::progress(const std::string& what, std::uint64_t done, std::uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (what != what_) {
    end_line();
    what_ = what;
    first_ = done;
    last_tenth_ = 0;
    start_ = now;
    shown_ = now - kBetweenUpdates;
  }
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string text = what + ": " + progress_text(done, total, done - first_, seconds);
  if (on_terminal_) {
    if (now - shown_ < kBetweenUpdates && done < total) return;
    shown_ = now;
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    line_open_ = true;
    return;
  }
  const std::uint64_t tenth = total > 0 ? done * 10 / total : 10;
  if (tenth == last_tenth_) return;
  last_tenth_ = tenth;
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace sape2::cli
