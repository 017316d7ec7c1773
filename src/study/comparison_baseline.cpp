#include "sape2/study/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace sape2::study {

std::vector<std::optional<BaselineDifference>> baseline_differences(const Comparison& comparison,
                                                                    std::string_view key) {
  const std::string_view figure = key.empty() ? figures_of(comparison).front().key : key;
  std::vector<std::optional<BaselineDifference>> all(comparison.rows.size());
  const auto& baseline = comparison.plan.baseline;
  const auto found = std::ranges::find_if(comparison.rows, [&](const RowResult& row) {
    return baseline && row.row.encoding == *baseline;
  });
  if (found == comparison.rows.end()) return all;
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    const RowResult& row = comparison.rows[i];
    if (&row == &*found) continue;
    BaselineDifference result;
    for (const RunResult& run : row.runs) {
      const auto partner = std::ranges::find(found->runs, run.seed, &RunResult::seed);
      if (partner == found->runs.end()) continue;
      result.seeds.push_back(run.seed);
      result.points.push_back(100 * (train::figure_of(run.figures, figure) -
                                     train::figure_of(partner->figures, figure)));
    }
    if (result.seeds.empty()) continue;
    result.difference = paired_difference(result.points);
    all[i] = std::move(result);
  }
  return all;
}

std::string to_string(const BaselineDifference& difference) {
  const auto& [mean, interval] = difference.difference;
  const std::string seeds =
      fmt::format("{} seed{}", difference.seeds.size(), difference.seeds.size() == 1 ? "" : "s");
  if (!interval) return fmt::format("{:+.2f} ({})", mean, seeds);
  return fmt::format("{:+.2f} ({:+.2f} to {:+.2f}, {})", mean, interval->low, interval->high,
                     seeds);
}

}  // namespace sape2::study
