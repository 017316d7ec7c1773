#include "sape2/io/atomic_file.h"
#include "sape2/study/comparison_report.h"
#include "sape2/train/task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace sape2::study {
namespace {

constexpr double kPercent = 100;
constexpr double kSecondsAMinute = 60;
constexpr const char* kNothing = "–";

std::string shown(const Spread& spread, int decimals) {
  if (!spread.deviation) return fmt::format("{:.{}f}", spread.mean, decimals);
  return fmt::format("{:.{}f} ± {:.{}f}", spread.mean, decimals, *spread.deviation, decimals);
}

std::vector<double> values_of(const RowResult& row, double RunResult::*member, double factor) {
  std::vector<double> values;
  for (const RunResult& run : row.runs) values.push_back(factor * run.*member);
  return values;
}

std::string cell(const RowResult& row, double RunResult::*member, double factor, int decimals) {
  if (row.runs.empty()) return kNothing;
  return shown(spread_of(values_of(row, member, factor)), decimals);
}

std::string duration(const RowResult& row) {
  if (row.runs.empty()) return kNothing;
  const double seconds = spread_of(values_of(row, &RunResult::seconds, 1)).mean;
  if (seconds < kSecondsAMinute) return fmt::format("{:.0f} s", seconds);
  if (seconds < kSecondsAMinute * kSecondsAMinute) {
    return fmt::format("{:.1f} min", seconds / kSecondsAMinute);
  }
  return fmt::format("{:.1f} h", seconds / kSecondsAMinute / kSecondsAMinute);
}

std::string memory(const RowResult& row) {
  std::int64_t most = 0;
  for (const RunResult& run : row.runs) most = std::max(most, run.peak_bytes);
  return most == 0 ? kNothing : fmt::format("{} MiB", most >> 20);
}

// With the share of runs that have no figure: a mean over the others alone would flatter.
std::string accuracy(const RowResult& row, const std::string& key) {
  const std::string figure =
      row.runs.empty() ? kNothing : shown(spread_of(percentages(row, key)), 2);
  if (row.failed.empty()) return figure;
  if (row.runs.empty()) return "diverged";
  return fmt::format("{}, {} of {} diverged", figure, row.failed.size(),
                     row.failed.size() + row.runs.size());
}

// The main figure in % of what the runs of a row started from.
std::vector<double> before_training(const RowResult& row) {
  std::vector<double> values;
  for (const RunResult& run : row.runs) {
    if (run.start) values.push_back(kPercent * train::main_figure(run.start->figures));
  }
  return values;
}

std::string chosen(const RowResult& row, const std::string& key) {
  const auto setting = std::ranges::find(row.chosen, key, &Setting::key);
  return setting == row.chosen.end() ? kNothing : train::to_string(setting->value);
}

// "seed 3", "seeds 0 to 4", "seeds 0, 1 and 7"
std::string seed_list(std::vector<std::uint64_t> seeds) {
  std::ranges::sort(seeds);
  if (seeds.size() == 1) return fmt::format("seed {}", seeds.front());
  if (seeds.back() - seeds.front() + 1 == seeds.size()) {
    return fmt::format("seeds {} to {}", seeds.front(), seeds.back());
  }
  const std::uint64_t last = seeds.back();
  seeds.pop_back();
  return fmt::format("seeds {} and {}", fmt::join(seeds, ", "), last);
}

// Cells between bars; a bar inside of one is escaped.
std::string markdown_table(const ReportTable& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (std::string cell : cells) {
      for (std::size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) {
        cell.insert(at, 1, '\\');
      }
      text += " " + cell + " |";
    }
    return text + "\n";
  };
  std::string text = line(table.header) + "|";
  for (std::size_t i = 0; i < table.header.size(); ++i) text += "---|";
  text += "\n";
  for (const auto& row : table.rows) text += line(row);
  return text;
}

std::string published(const std::optional<double>& figure) {
  return figure ? fmt::format("{:.2f}", *figure) : kNothing;
}

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "cifar10", "segmentation of oxford-pets"
std::string described_data(const train::RunConfig& config) {
  if (config.model.task == nn::kClassification) return config.data.name;
  return config.model.task + " of " + config.data.name;
}

}  // namespace

const std::vector<train::FigureDefinition>& figures_of(const Comparison& comparison) {
  return train::task_named(comparison.plan.common.model.task).figures();
}

const std::string& main_name(const Comparison& comparison) {
  return figures_of(comparison).front().name;
}

std::vector<double> percentages(const RowResult& row, std::string_view key) {
  std::vector<double> values;
  for (const RunResult& run : row.runs) {
    values.push_back(kPercent * train::figure_of(run.figures, key));
  }
  return values;
}

Spread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const auto count = static_cast<double>(values.size());
  Spread spread{sum / count, std::nullopt};
  if (values.size() < 2) return spread;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

std::string grouped_digits(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return digits;
}

ReportTable report_table(const Comparison& comparison) {
  const auto any = [&](auto has) { return std::ranges::any_of(comparison.rows, has); };
  const bool notes = any([](const RowResult& row) { return !row.row.note.empty(); });
  const bool top1 = any([](const RowResult& row) { return row.row.published.top1.has_value(); });
  const bool top5 = any([](const RowResult& row) { return row.row.published.top5.has_value(); });

  const bool starts = any([](const RowResult& row) { return !before_training(row).empty(); });

  ReportTable table;
  table.header = {"encoding"};
  if (notes) table.header.push_back("what it is");
  const auto& plan = comparison.plan;
  const auto tuned = plan.tuning ? plan.tuning->axes : std::vector<TuningAxis>();
  for (const TuningAxis& axis : tuned) table.header.push_back(axis.key);
  const auto& figures = figures_of(comparison);
  const auto with_differences = [&](const train::FigureDefinition& figure) {
    return plan.baseline && &figure != &figures.front() && figure.compared;
  };
  if (starts) table.header.push_back("before training %");
  table.header.push_back(main_name(comparison) + " %");
  if (plan.baseline) table.header.push_back("less " + plan.baseline->to_string());
  if (top1) table.header.push_back("paper's top-1 %");
  table.header.push_back("best epoch %");
  for (std::size_t i = 1; i < figures.size(); ++i) {
    table.header.push_back(figures[i].name + " %");
    if (with_differences(figures[i])) {
      table.header.push_back(figures[i].name + " less " + plan.baseline->to_string());
    }
  }
  if (top5) table.header.push_back("paper's top-5 %");
  for (const char* name : {"parameters", "time per run", "images/s", "peak memory", "runs"}) {
    table.header.push_back(name);
  }
  const auto differences = baseline_differences(comparison);
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    const RowResult& row = comparison.rows[i];
    std::vector<std::string> cells{row.row.encoding.to_string()};
    if (notes) cells.push_back(row.row.note);
    for (const TuningAxis& axis : tuned) cells.push_back(chosen(row, axis.key));
    if (starts) {
      const auto before = before_training(row);
      cells.push_back(before.empty() ? kNothing : shown(spread_of(before), 2));
    }
    cells.push_back(accuracy(row, figures.front().key));
    if (plan.baseline) cells.push_back(differences[i] ? to_string(*differences[i]) : kNothing);
    if (top1) cells.push_back(published(row.row.published.top1));
    cells.push_back(cell(row, &RunResult::best, kPercent, 2));
    for (std::size_t k = 1; k < figures.size(); ++k) {
      cells.push_back(row.runs.empty() ? kNothing
                                       : shown(spread_of(percentages(row, figures[k].key)), 2));
      if (!with_differences(figures[k])) continue;
      const auto of_this = baseline_differences(comparison, figures[k].key);
      cells.push_back(of_this[i] ? to_string(*of_this[i]) : kNothing);
    }
    if (top5) cells.push_back(published(row.row.published.top5));
    cells.push_back(grouped_digits(row.parameters));
    cells.push_back(duration(row));
    cells.push_back(
        row.runs.empty()
            ? kNothing
            : fmt::format("{:.0f}",
                          spread_of(values_of(row, &RunResult::images_per_second, 1)).mean));
    cells.push_back(memory(row));
    cells.push_back(std::to_string(row.runs.size()));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string report_caption(const Comparison& comparison) {
  const ComparisonPlan& plan = comparison.plan;
  const train::RunConfig& common = plan.common;
  std::string images =
      common.data.train_images > 0
          ? fmt::format(" (the first {} training images)", grouped_digits(common.data.train_images))
          : "";
  std::string text = fmt::format(
      "{} on {}{}, recipe {}: {}, batch {}, {}, on {}. {} that of the last epoch on the "
      "test images{}.",
      plan.model, described_data(common), images, plan.recipe,
      counted(common.recipe.epochs, "epoch"), common.recipe.batch_size, seed_list(plan.seeds),
      common.device, common.model.task == nn::kClassification ? "Accuracy is" : "Every figure is",
      plan.seeds.size() == 1 ? "" : ", ± one standard deviation over the seeds");
  if (!common.init.empty()) {
    text += fmt::format(" Every run starts from {}.",
                        std::filesystem::path(common.init).filename().native());
  }
  if (plan.tuning) text += " Each encoding has the settings that its tuning chose.";
  if (plan.baseline) {
    text += fmt::format(
        " The column \"less {}\" has the difference in points of the same seeds, with the 95 % "
        "interval of the paired t test.",
        plan.baseline->to_string());
  }
  if (!comparison.finished) text += " Not all runs are finished; the same command goes on.";
  return text;
}

std::string markdown_report(const Comparison& comparison) {
  std::string text = report_caption(comparison) + "\n\n" + markdown_table(report_table(comparison));
  if (const std::string verdict = report_verdict(comparison); !verdict.empty()) {
    text += "\n" + verdict + "\n";
  }
  if (comparison.plan.tuning) {
    text += "\n" + tuning_caption(comparison) + "\n\n" + markdown_table(tuning_table(comparison));
  }
  return text;
}

void write_reports(const Comparison& comparison, const std::filesystem::path& folder) {
  io::write_file(folder / "table.md", markdown_report(comparison));
  io::write_file(folder / "results.json", json_report(comparison));
  io::write_file(folder / "report.html", html_report(comparison));
}

}  // namespace sape2::study
