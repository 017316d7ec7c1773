#include "sape2/study/comparison_report.h"

#include "study/svg_chart.h"
#include "study/svg_forest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sape2::study {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>SaPE²: comparison of position encodings</title>
<style>
:root { color-scheme: light dark; --ink: #1d2329; --dim: #66707a; --rule: #d9dee3; --paper: #fff;
  --c0: #1f6fb4; --c1: #d9660f; --c2: #2f9149; --c3: #b8323f; --c4: #7a4fb5; --c5: #8a5a3c;
  --c6: #c04f9b; --c7: #0f8f99; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --dim: #98a2ac; --rule: #39424b; --paper: #14181c;
  --c0: #5ea9e8; --c1: #f39a4f; --c2: #63c27d; --c3: #ef7480; --c4: #b191e8; --c5: #c4977a;
  --c6: #ea8fcb; --c7: #4cc4cd; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
th { font-weight: 600; }
td.best { font-weight: 700; }
.verdict, .forest { max-width: 48rem; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .5em; border-radius: 2px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem;
  margin-top: 1.5rem; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font-size: 13px; }
svg .title { font-size: 15px; font-weight: 600; }
svg .tick { fill: var(--dim); }
.grid { stroke: var(--rule); } .axis { stroke: var(--dim); }
.line { fill: none; stroke-width: 2; } .again { stroke-dasharray: 5 4; }
.band { opacity: .15; stroke: none; }
footer { color: var(--dim); margin-top: 2rem; }
)";

std::string colour_rules() {
  std::string css;
  for (int i = 0; i < 8; ++i) {
    css += fmt::format(
        ".line.s{0} {{ stroke: var(--c{0}); }} .dot.s{0}, .band.s{0} {{ fill: var(--c{0}); }} "
        ".key.s{0} {{ background: var(--c{0}); }}\n",
        i);
  }
  return css;
}

// Of every epoch: the mean over the runs, with the least and the largest around it.
ChartLine line_of(const RowResult& row, std::optional<double> (*value)(const train::EpochRecord&)) {
  std::map<std::int64_t, std::vector<double>> by_epoch;
  for (const RunResult& run : row.runs) {
    for (const train::EpochRecord& record : run.epochs) {
      if (const auto y = value(record)) by_epoch[record.epoch].push_back(*y);
    }
  }
  ChartLine line{row.row.encoding.to_string(), {}};
  for (const auto& [epoch, values] : by_epoch) {
    const auto x = static_cast<double>(epoch);
    line.points.emplace_back(x, spread_of(values).mean);
    if (row.runs.size() < 2) continue;
    line.lower.emplace_back(x, std::ranges::min(values));
    line.upper.emplace_back(x, std::ranges::max(values));
  }
  return line;
}

std::string chart(const Comparison& comparison, const char* title,
                  std::optional<double> (*value)(const train::EpochRecord&)) {
  std::vector<ChartLine> lines;
  for (const RowResult& row : comparison.rows) lines.push_back(line_of(row, value));
  return svg_chart(title, "epoch", lines);
}

// What differs from the baseline; nothing if there is none or no seed is shared with it.
std::string forest(const Comparison& comparison, const train::FigureDefinition& figure) {
  const auto differences = baseline_differences(comparison, figure.key);
  std::vector<ForestRow> rows;
  for (std::size_t i = 0; i < differences.size(); ++i) {
    if (!differences[i]) continue;
    rows.push_back({comparison.rows[i].row.encoding.to_string(), to_string(*differences[i]),
                    differences[i]->difference, line_class(i)});
  }
  if (rows.empty()) return "";
  return "<div class=\"forest\">\n" +
         svg_forest(figure.name + " less that of " + comparison.plan.baseline->to_string(),
                    "points, mean and 95 % interval over paired seeds", rows) +
         "</div>\n";
}

std::string forests(const Comparison& comparison) {
  std::string html;
  const auto& figures = figures_of(comparison);
  for (const train::FigureDefinition& figure : figures) {
    if (&figure == &figures.front() || figure.compared) html += forest(comparison, figure);
  }
  return html;
}

std::string charts(const Comparison& comparison) {
  using train::EpochRecord;
  std::string html = "<div class=\"charts\">\n";
  const std::string title = main_name(comparison) + " on the test images, %";
  html += chart(comparison, title.c_str(), [](const EpochRecord& record) {
    return record.test ? std::optional(100 * train::main_figure(record.test->figures))
                       : std::nullopt;
  });
  html += chart(comparison, "loss on the test images", [](const EpochRecord& record) {
    return record.test ? std::optional(record.test->loss) : std::nullopt;
  });
  html += chart(comparison, "loss in training",
                [](const EpochRecord& record) { return std::optional(record.train_loss); });
  return html + "</div>\n";
}

std::size_t best_row(const Comparison& comparison) {
  std::size_t best = comparison.rows.size();
  double highest = -1;
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    const auto values = percentages(comparison.rows[i], figures_of(comparison).front().key);
    if (values.empty() || spread_of(values).mean <= highest) continue;
    highest = spread_of(values).mean;
    best = i;
  }
  return best;
}

std::string html_table(const ReportTable& table, std::size_t best, const std::string& figure) {
  const auto words = [&](std::size_t column) {
    return table.header[column] == "what it is" ? " class=\"words\"" : "";
  };
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    html += fmt::format("<th{}>{}</th>", words(i), escaped_html(table.header[i]));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    html += "<tr>";
    for (std::size_t i = 0; i < table.rows[r].size(); ++i) {
      const bool is_best = r == best && table.header[i] == figure + " %";
      const std::string key =
          i == 0 ? fmt::format("<span class=\"key {}\"></span>", line_class(r)) : "";
      html += fmt::format("<td{}>{}{}</td>", is_best ? " class=\"best\"" : words(i), key,
                          escaped_html(table.rows[r][i]));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string tuning(const Comparison& comparison) {
  if (!comparison.plan.tuning) return "";
  return "<h2>Tuning</h2>\n<p class=\"verdict\">" + escaped_html(tuning_caption(comparison)) +
         "</p>\n" +
         html_table(tuning_table(comparison), comparison.rows.size(), main_name(comparison));
}

std::string verdict(const Comparison& comparison) {
  const std::string text = report_verdict(comparison);
  return text.empty() ? "" : "<p class=\"verdict\">" + escaped_html(text) + "</p>\n";
}

}  // namespace

std::string html_report(const Comparison& comparison) {
  return kHead + colour_rules() + "</style></head>\n<body>\n" +
         "<h1>Position encodings compared</h1>\n<p>" + escaped_html(report_caption(comparison)) +
         "</p>\n" +
         html_table(report_table(comparison), best_row(comparison), main_name(comparison)) +
         verdict(comparison) + forests(comparison) + charts(comparison) + tuning(comparison) +
         "<footer>Written by sape2 compare. Bands span the least and the largest of the seeds; "
         "results.json beside this file holds every figure.</footer>\n</body></html>\n";
}

}  // namespace sape2::study
