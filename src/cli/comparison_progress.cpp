#include "cli/comparison_progress.h"

#include "cli/duration_text.h"

#include <fmt/format.h>

namespace sape2::cli {
namespace {

std::string number_of(const study::ComparisonRun& run) {
  return fmt::format("[{}/{}] ", run.number, run.total);
}

}  // namespace

void ComparisonProgress::run_begins(const study::ComparisonRun& run) {
  note(run, fmt::format("{}, seed {}{}", run.encoding.to_string(), run.seed,
                        run.reused ? ": trained before" : ""));
}

void ComparisonProgress::step_done(const study::ComparisonRun& run,
                                   const train::StepReport& report) {
  lines_.set_title(number_of(run));
  lines_.step_done(report);
}

void ComparisonProgress::epoch_done(const study::ComparisonRun& run,
                                    const train::EpochRecord& record, std::int64_t epochs) {
  lines_.set_title(number_of(run));
  lines_.epoch_done(record, epochs);
}

void ComparisonProgress::note(const study::ComparisonRun& run, const std::string& sentence) {
  lines_.note(number_of(run) + sentence);
}

void ComparisonProgress::run_ended(const study::ComparisonRun& run,
                                   const study::RunResult& result) {
  if (run.reused) return;
  note(run, fmt::format("{}: top-1 {:.2f} % after {}", run.encoding.to_string(), 100 * result.top1,
                        duration_text(result.seconds)));
}

}  // namespace sape2::cli
