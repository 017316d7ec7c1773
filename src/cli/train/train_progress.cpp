#include "cli/train/train_progress.h"

#include "sape2/base/in_quotes.h"
#include "sape2/train/task.h"

#include "cli/duration_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace sape2::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTerminalPause = std::chrono::milliseconds(100);
constexpr auto kPlainPause = std::chrono::seconds(15);

std::string test_text(const train::TestRecord& test) {
  std::string text = fmt::format("  test loss {:.4f}", test.loss);
  for (const train::Figure& figure : test.figures) {
    text += fmt::format("  {} {:.2f} %", train::figure_name(figure.key), 100 * figure.value);
  }
  return text;
}

}  // namespace

TrainProgress::TrainProgress() : rewrites_(::isatty(STDOUT_FILENO) == 1) {
  // Elsewhere the first line comes after a while, when there is something to tell.
  if (!rewrites_) last_shown_ = Clock::now();
}

TrainProgress::~TrainProgress() {
  if (line_is_open_) std::fputs("\r\x1b[K", stdout);
  std::fflush(stdout);
}

void TrainProgress::step_done(const train::StepReport& report) {
  const auto now = Clock::now();
  if (now - last_shown_ < (rewrites_ ? Clock::duration(kTerminalPause) : kPlainPause)) return;
  last_shown_ = now;
  const std::string text = fmt::format(
      "epoch {}/{}  step {}/{}  loss {:.4f}  rate {:.2e}  {:.0f} images/s  {} left", report.epoch,
      report.epochs, report.step, report.steps, report.loss, report.learning_rate,
      report.images_per_second, duration_text(report.seconds_left));
  if (rewrites_) {
    fmt::print("\r{}\x1b[K", text);
    line_is_open_ = true;
    std::fflush(stdout);
  } else {
    print_line(text);
  }
}

void TrainProgress::epoch_done(const train::EpochRecord& record, int64_t epochs) {
  std::string text =
      fmt::format("epoch {}/{}  training loss {:.4f}", record.epoch, epochs, record.train_loss);
  if (record.test) text += test_text(*record.test);
  print_line(text + "  after " + duration_text(record.seconds));
}

void TrainProgress::start_tested(const train::TestRecord& test) {
  print_line("epoch 0  before training" + test_text(test));
}

void TrainProgress::note(const std::string& sentence) {
  print_line(sentence);
}

void TrainProgress::print_line(const std::string& text) {
  fmt::print("{}{}\n", line_is_open_ ? "\r\x1b[K" : "", printable(text));
  line_is_open_ = false;
  std::fflush(stdout);
}

}  // namespace sape2::cli
