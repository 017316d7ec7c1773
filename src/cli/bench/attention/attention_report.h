#pragma once

#include "cli/bench/attention/attention_measure.h"
#include "cli/info/blas_library.h"
#include "cli/terminal.h"

#include <nlohmann/json_fwd.hpp>

#include <vector>

namespace sape2::cli {

/// The table that people read, and the rows that machines read.
void print_report(const Terminal& terminal, const std::vector<AttentionRow>& rows,
                  const BlasLibrary& blas, double gflops, bool with_reference);
std::string report_json(const std::vector<AttentionRow>& rows, const BlasLibrary& blas);

/// What such a row says of the case itself, on any device.
nlohmann::ordered_json case_json(const AttentionCase& wanted);

}  // namespace sape2::cli
