#include "data/get/md5.h"

#include <gtest/gtest.h>

#include <string>

namespace sape2::data {
namespace {

std::string md5_of_text(const std::string& text) {
  return md5_of({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

// The test suite of RFC 1321.
TEST(Md5, KnownAnswers) {
  EXPECT_EQ(md5_of_text(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_of_text("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(md5_of_text("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5_of_text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f");
  EXPECT_EQ(md5_of_text("1234567890123456789012345678901234567890123456789012345678901234567890"
                        "1234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, DoesNotDependOnHowTheBytesArrive) {
  const std::string text(1000, 'x');
  for (const std::size_t piece : {1u, 7u, 63u, 64u, 65u, 999u}) {
    Md5 md5;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const std::size_t count = std::min(piece, text.size() - at);
      md5.update({reinterpret_cast<const std::uint8_t*>(text.data()) + at, count});
    }
    EXPECT_EQ(md5.finish(), md5_of_text(text)) << piece;
  }
}

}  // namespace
}  // namespace sape2::data
