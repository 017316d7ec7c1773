#pragma once

#include "sape2/study/comparison.h"

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

/// A number in groups of three digits: 1,234,567.
std::string grouped_digits(std::int64_t number);

/// The table of a comparison as text: a header, then a row an encoding.
struct ReportTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
ReportTable report_table(const Comparison& comparison);

/// What was trained and how, in a sentence or two.
std::string report_caption(const Comparison& comparison);

/// What the table says and what it cannot say, in words: which encoding leads, over which others
/// the lead is more than seeds and test images explain, and whether the training was too short or
/// too rarely repeated to rank them. Nothing if fewer than two encodings have finished a run.
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
