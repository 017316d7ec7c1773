#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

/// Helpers of the one-sentence messages.
namespace sape2::data {

/// Text of a user or a file, in double quotes, fit for one line: control bytes are escaped.
std::string in_quotes(std::string_view text);
inline std::string in_quotes(const std::string& text) {
  return in_quotes(std::string_view(text));
}
inline std::string in_quotes(const std::filesystem::path& path) {
  return in_quotes(path.native());
}

/// 1234567 as "1,234,567".
std::string grouped(std::uint64_t number);

/// "1 image", "2 images".
std::string counted(std::uint64_t number, std::string_view noun);

}  // namespace sape2::data
