#pragma once

#include "sape2/study/comparison.h"

#include <string>
#include <vector>

namespace sape2::study {

/// Mean and sample deviation; the deviation of fewer than two values is nothing.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
};
Spread spread_of(const std::vector<double>& values);

/// The table of a comparison as text: a header, then a row an encoding.
struct ReportTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
ReportTable report_table(const Comparison& comparison);

/// What was trained and how, in a sentence or two.
std::string report_caption(const Comparison& comparison);

std::string markdown_report(const Comparison& comparison);
std::string json_report(const Comparison& comparison);

/// One file with nothing to load from elsewhere.
std::string html_report(const Comparison& comparison);

/// Writes table.md, results.json and report.html.
void write_reports(const Comparison& comparison, const std::filesystem::path& folder);

}  // namespace sape2::study
