#include "cli/study/comparison_progress.h"

#include "sape2/train/task.h"

#include "cli/duration_text.h"

#include <fmt/format.h>

namespace sape2::cli {

void ComparisonProgress::run_begins(const std::string& what, std::int64_t number,
                                    std::int64_t total, bool has_result) {
  const std::string line = fmt::format("[{}/{}] {}", number, total, what);
  trained_already_ = has_result ? line + ": trained already" : "";
  if (!has_result) run_.note(line);
}

void ComparisonProgress::run_ended(const std::string& what, const study::RunResult& result) {
  const std::string figure =
      result.figures.empty() ? "" : train::figure_name(result.figures.front().key);
  run_.note(fmt::format("{}: {} {:.2f} % after {}",
                        trained_already_.empty() ? what : trained_already_, figure,
                        100 * result.score(), duration_text(result.seconds)));
}

void ComparisonProgress::run_failed(const std::string& what, const std::string& reason) {
  run_.note(fmt::format("{} has no result: {}", what, reason));
}

void ComparisonProgress::waits(std::int64_t runs) {
  run_.note(fmt::format("waiting for {} run{} in other processes", runs, runs == 1 ? "" : "s"));
}

}  // namespace sape2::cli
