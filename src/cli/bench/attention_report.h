#pragma once

#include "cli/bench/attention_measure.h"
#include "cli/terminal.h"

#include <vector>

namespace sape2::cli {

/// The table that people read, and the rows that machines read.
void print_report(const Terminal& terminal, const std::vector<AttentionRow>& rows, double gflops);
std::string report_json(const std::vector<AttentionRow>& rows);

}  // namespace sape2::cli
