#include "io/in_quotes.h"

#include <cstdio>

namespace sape2::io {
namespace {

constexpr std::size_t kLongestText = 160;

bool is_continuation_byte(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::size_t length = text.size();
  if (length > kLongestText) {
    length = kLongestText;
    while (length > 0 && is_continuation_byte(text[length])) --length;
  }
  std::string result = "\"";
  for (char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", byte);
      result += escape;
    } else {
      result += c;
    }
  }
  if (length < text.size()) result += "…";
  return result + "\"";
}

}  // namespace sape2::io
