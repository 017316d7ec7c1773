#include "cli/comparison_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace sape2::cli {
namespace {

constexpr auto kBetweenLines = std::chrono::milliseconds(250);

std::string minutes(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ComparisonProgress::ComparisonProgress() : living_(::isatty(STDOUT_FILENO) == 1) {}

void ComparisonProgress::run_begins(const nn::EncodingSpec& encoding, std::uint64_t seed,
                                    std::int64_t number, std::int64_t total, bool reused) {
  run_ = fmt::format("[{}/{}] {}, seed {}", number, total, encoding.to_string(), seed);
  reused_ = reused;
  if (!reused && !living_) line(run_);
}

void ComparisonProgress::run_ended(const nn::EncodingSpec&, const study::RunResult& result) {
  line(fmt::format("{}: top-1 {:.2f} %, {} of training{}", run_, 100 * result.top1,
                   minutes(result.seconds), reused_ ? ", trained before" : ""));
}

void ComparisonProgress::step_done(const train::StepReport& report) {
  const auto now = std::chrono::steady_clock::now();
  if (!living_ || now - shown_ < kBetweenLines) return;
  shown_ = now;
  living_line(fmt::format("{}: epoch {}/{}, loss {:.3f}, {:.0f} images/s, {} left", run_,
                          report.epoch, report.epochs, report.loss, report.images_per_second,
                          minutes(report.seconds_left)));
}

void ComparisonProgress::epoch_done(const train::EpochRecord& record, std::int64_t epochs) {
  if (living_) return;
  const std::string test =
      record.test ? fmt::format(", top-1 {:.2f} %", 100 * record.test->top1) : "";
  line(fmt::format("  epoch {}/{}: loss {:.3f}{}, {}", record.epoch, epochs, record.train_loss,
                   test, minutes(record.seconds)));
}

void ComparisonProgress::note(const std::string& sentence) {
  line("  " + sentence);
}

void ComparisonProgress::line(const std::string& text) {
  std::fputs(line_open_ ? "\r\x1b[K" : "", stdout);
  line_open_ = false;
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void ComparisonProgress::living_line(const std::string& text) {
  std::fputs(("\r\x1b[K" + text).c_str(), stdout);
  std::fflush(stdout);
  line_open_ = true;
}

}  // namespace sape2::cli
