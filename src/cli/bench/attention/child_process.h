#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace sape2::cli {

/// Runs this program once more with other arguments and one changed environment variable, and
/// returns what it printed; nothing where it failed, or was not done in time and was ended.
std::optional<std::string> output_of_self(const std::vector<std::string>& arguments,
                                          const std::string& variable, const std::string& value,
                                          std::chrono::seconds limit);

}  // namespace sape2::cli
