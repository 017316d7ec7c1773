#pragma once

#include "sape2/base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace sape2 {

/// Text of a user or a file as it may be shown on a terminal, on one line: control characters,
/// those that turn the direction of writing, and bytes that are not UTF-8 are escaped. JSON stays
/// the same JSON.
inline std::string printable(std::string_view text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string shown;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    const auto byte = static_cast<unsigned char>(text.front());
    const bool turns = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    if (bytes == 0 || code < 0x20) {
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else if ((code >= 0x7F && code < 0xA0) || turns) {
      shown += {'\\',
                'u',
                kDigits[code >> 12],
                kDigits[code >> 8 & 15],
                kDigits[code >> 4 & 15],
                kDigits[code & 15]};
    } else {
      shown += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return shown;
}

/// The same in double quotes, for messages: long text is cut (between characters of UTF-8).
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::size_t length = std::min(text.size(), kLongest);
  const auto continues = [&](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (length > 0 && length < text.size() && continues(text[length])) --length;
  std::string shown = "\"";
  shown += printable(text.substr(0, length));
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
