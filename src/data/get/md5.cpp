#include "data/get/md5.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <vector>

namespace sape2::data {
namespace {

// OpenSSL has no MD5 where the system's policy forbids it, such as in FIPS mode.
void check(int status) {
  if (status != 1) throw Error("this system's OpenSSL computes no MD5, so no file can be verified");
}

}  // namespace

Md5::Md5() : context_(EVP_MD_CTX_new()) {
  check(context_ != nullptr ? EVP_DigestInit_ex(context_, EVP_md5(), nullptr) : 0);
}

Md5::~Md5() {
  EVP_MD_CTX_free(context_);
}

void Md5::update(std::span<const std::uint8_t> bytes) {
  check(EVP_DigestUpdate(context_, bytes.data(), bytes.size()));
}

std::string Md5::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  check(EVP_DigestFinal_ex(context_, digest.data(), &length));
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string md5_of(std::span<const std::uint8_t> bytes) {
  Md5 md5;
  md5.update(bytes);
  return md5.finish();
}

std::string md5_of_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(fmt::format("cannot read {}", in_quotes(path)));
  Md5 md5;
  std::vector<std::uint8_t> buffer(1 << 20);
  while (stream.read(reinterpret_cast<char*>(buffer.data()),
                     static_cast<std::streamsize>(buffer.size())),
         stream.gcount() > 0) {
    md5.update(std::span(buffer).first(static_cast<std::size_t>(stream.gcount())));
  }
  return md5.finish();
}

}  // namespace sape2::data
