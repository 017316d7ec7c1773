#pragma once

#include "sape2/study/comparison.h"

#include "cli/terminal.h"

#include <filesystem>

namespace sape2::cli {

/// Prints the tables of a comparison, what they say, and which reports lie in its folder.
void print_comparison(const Terminal& terminal, const study::Comparison& comparison,
                      const std::filesystem::path& folder);

}  // namespace sape2::cli
