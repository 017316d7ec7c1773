#pragma once

#include "sape2/study/comparison.h"
#include "sape2/study/uncertainty.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::study {

/// Mean and sample deviation; the deviation of fewer than two values is nothing.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
};
Spread spread_of(const std::vector<double>& values);

/// What the comparison's task measures, and the name of the first of it: "top-1".
const std::vector<train::FigureDefinition>& figures_of(const Comparison& comparison);
const std::string& main_name(const Comparison& comparison);

/// The figure of every run of a row, in %.
std::vector<double> percentages(const RowResult& row, std::string_view key);

/// A number in groups of three digits: 1,234,567.
std::string grouped_digits(std::int64_t number);

/// The table of a comparison as text: a header, then a row an encoding.
struct ReportTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
ReportTable report_table(const Comparison& comparison);

/// What each encoding had at each point of the tuning's grid, the chosen one marked; empty if the
/// comparison has no tuning.
ReportTable tuning_table(const Comparison& comparison);

/// How that was measured, in a sentence or two.
std::string tuning_caption(const Comparison& comparison);

/// A row less the baseline, in points of a figure.
struct BaselineDifference {
  std::vector<std::uint64_t> seeds;  ///< that both have
  std::vector<double> points;        ///< of each of these seeds
  Difference difference;             ///< their mean
};

/// One for every row; nothing for the baseline itself, for rows that share no seed with it, and if
/// the comparison has no baseline.
/// `key`: the figure; empty: the main one.
std::vector<std::optional<BaselineDifference>> baseline_differences(const Comparison& comparison,
                                                                    std::string_view key = "");

/// "+0.28 (+0.07 to +0.49, 7 seeds)"; of one seed: "+0.28 (1 seed)".
std::string to_string(const BaselineDifference& difference);

/// What was trained and how, in a sentence or two.
std::string report_caption(const Comparison& comparison);

/// What the table says and what it cannot say, in words: which encoding leads, over which others
/// the lead is more than seeds and test images explain, and whether the training was too short or
/// too rarely repeated to rank them. With a baseline, what differs from it by the paired t test;
/// then which runs diverged, and which choice of the tuning lies at the end of its grid. Nothing if
/// there is nothing to tell.
std::string report_verdict(const Comparison& comparison);

std::string markdown_report(const Comparison& comparison);
std::string json_report(const Comparison& comparison);

/// Back from the text of results.json. Throws Error with a sentence that begins with `source` if it
/// is none.
Comparison comparison_from_json(std::string_view json, std::string_view source);

/// One file with nothing to load from elsewhere.
std::string html_report(const Comparison& comparison);

/// Writes table.md, results.json and report.html.
void write_reports(const Comparison& comparison, const std::filesystem::path& folder);

}  // namespace sape2::study
