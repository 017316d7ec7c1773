#include "sape2/study/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace sape2::study {
namespace {

std::string trial_cell(const RowResult& row, const Settings& settings) {
  const auto trial = std::ranges::find(row.trials, settings, &Trial::settings);
  if (trial == row.trials.end()) return "–";
  if (!trial->failure.empty()) return "diverged";
  return fmt::format("{:.2f}{}", 100 * trial->score, settings == row.chosen ? " *" : "");
}

}  // namespace

ReportTable tuning_table(const Comparison& comparison) {
  ReportTable table;
  const auto& tuning = comparison.plan.tuning;
  if (!tuning) return table;
  table.header = {"encoding"};
  const auto grid = tuning->grid();
  for (const Settings& settings : grid) table.header.push_back(to_string(settings));
  for (const RowResult& row : comparison.rows) {
    std::vector<std::string> cells{row.row.encoding.to_string()};
    for (const Settings& settings : grid) cells.push_back(trial_cell(row, settings));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string tuning_caption(const Comparison& comparison) {
  const auto& tuning = comparison.plan.tuning;
  if (!tuning) return "";
  std::string text = fmt::format(
      "Tuning: every encoding tried the same {} settings for {} epoch{} each, seed {}. The figures "
      "are {} % on {} images held out of the training images by a fixed draw; no test image was "
      "read. * is what was chosen for the runs above, which train on all training images.",
      tuning->grid().size(), tuning->epochs, tuning->epochs == 1 ? "" : "s", kTrialSeed,
      main_name(comparison), grouped_digits(tuning->held_out));
  const bool tied = std::ranges::any_of(comparison.rows, [](const RowResult& row) {
    return !row.chosen.empty() && best_is_tied(row.trials);
  });
  if (tied) text += " Where two are equal, the lower loss decided, then the order of the list.";
  return text;
}

}  // namespace sape2::study
