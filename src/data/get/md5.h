#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace sape2::data {

/// MD5 (RFC 1321): good enough against damage, which is what published checksums are for.
class Md5 {
 public:
  void update(std::span<const std::uint8_t> bytes);

  /// 32 hexadecimal digits; the object is used up.
  std::string finish();

 private:
  void take_block(const std::uint8_t* block);

  std::array<std::uint32_t, 4> state_{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t length_ = 0;
};

std::string md5_of(std::span<const std::uint8_t> bytes);
std::string md5_of_file(const std::filesystem::path& path);

}  // namespace sape2::data
