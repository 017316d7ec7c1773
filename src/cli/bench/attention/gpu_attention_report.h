#pragma once

#include "cli/bench/attention/gpu_attention.h"
#include "cli/terminal.h"

namespace sape2::cli {

/// The table that people read, and the rows that machines read.
void print_report(const Terminal& terminal, const std::string& device,
                  const std::vector<GpuAttentionRow>& rows);
std::string report_json(const std::string& device, const std::vector<GpuAttentionRow>& rows);

}  // namespace sape2::cli
