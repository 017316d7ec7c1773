#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <string>

namespace sape2::cli {

/// Accepts whole numbers within bounds only, and says so otherwise.
inline CLI::Validator whole_number(long least, long most) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        long value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool is_number = error == std::errc() && end == text.data() + text.size();
        if (is_number && value >= least && value <= most) return "";
        return "\"" + text + "\" is not a whole number from " + std::to_string(least) + " to " +
               std::to_string(most);
      },
      "");
}

}  // namespace sape2::cli
