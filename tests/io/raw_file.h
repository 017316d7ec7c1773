#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace sape2::io::test {

/// A file as it lies on the disk, with the length written as given or, by default, rightly.
inline std::string raw_file(std::string_view header, std::string_view data = "") {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

inline std::string raw_file(std::uint64_t claimed_length, std::string_view header) {
  std::string file = raw_file(header);
  std::memcpy(file.data(), &claimed_length, sizeof claimed_length);
  return file;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace sape2::io::test
