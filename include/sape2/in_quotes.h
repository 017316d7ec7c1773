#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace sape2 {

/// Text of a user or a file in double quotes, fit for a message of one line: control bytes are
/// escaped, long text is cut (between characters of UTF-8).
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  constexpr const char* kDigits = "0123456789abcdef";
  std::size_t length = std::min(text.size(), kLongest);
  const auto continues = [&](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (length > 0 && length < text.size() && continues(text[length])) --length;
  std::string shown = "\"";
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      shown += c;
    }
  }
  return shown + (length < text.size() ? "…\"" : "\"");
}
inline std::string in_quotes(const std::string& text) {
  return in_quotes(std::string_view(text));
}
inline std::string in_quotes(const char* text) {
  return in_quotes(std::string_view(text));
}
inline std::string in_quotes(const std::filesystem::path& path) {
  return in_quotes(path.native());
}

}  // namespace sape2
