#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sape2::cli {

/// Runs a program without its output, and says the most memory that it held. Nothing if it failed,
/// or where processes may not be watched (ptrace).
std::optional<std::int64_t> peak_bytes_of(const std::vector<std::string>& command);

}  // namespace sape2::cli
