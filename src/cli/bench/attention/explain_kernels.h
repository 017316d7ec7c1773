#pragma once

#include "cli/bench/attention/attention_case.h"

#include <string>

namespace sape2::cli {

/// Which CUDA kernels a case takes on a GPU, forward and, if wanted, backward: see ops::kernel_for.
std::string explain_kernels(const AttentionCase& wanted, const std::string& device);

}  // namespace sape2::cli
