#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

struct evp_md_ctx_st;  // of OpenSSL

namespace sape2::data {

/// MD5 (RFC 1321): good enough against damage, which is what published checksums are for.
class Md5 {
 public:
  Md5();
  ~Md5();
  Md5(const Md5&) = delete;
  Md5& operator=(const Md5&) = delete;

  void update(std::span<const std::uint8_t> bytes);

  /// 32 hexadecimal digits; the object is used up.
  std::string finish();

 private:
  evp_md_ctx_st* context_;
};

std::string md5_of(std::span<const std::uint8_t> bytes);
std::string md5_of_file(const std::filesystem::path& path);

}  // namespace sape2::data
