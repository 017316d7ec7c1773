#include "sape2/io/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sape2::io {
namespace {

using Crc = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

class Crc32c : public ::testing::TestWithParam<Crc> {
 protected:
  static std::uint32_t of(std::string_view text, std::uint32_t before = 0) {
    return GetParam()(std::as_bytes(std::span(text)), before);
  }
};

// Vectors of RFC 3720, section B.4, and the usual check value.
TEST_P(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(of("123456789"), 0xE3069283u);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(of(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(of(""), 0u);
}

TEST_P(Crc32c, CanBeChained) {
  const std::string_view text = "a text of more than eight bytes";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(of(text.substr(cut), of(text.substr(0, cut))), of(text));
  }
}

std::uint32_t bit_by_bit(std::string_view text) {
  std::uint32_t crc = ~0u;
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST_P(Crc32c, IsTheDefinitionAtEveryLengthAndAlignment) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * i * 37 + 11);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 80; ++length) {
      const std::string_view part = std::string_view(text).substr(begin, length);
      ASSERT_EQ(of(part), bit_by_bit(part)) << length << " bytes from " << begin;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Crc32c, ::testing::Values(&crc32c, &crc32c_portable),
                         [](const auto& given) { return given.index == 0 ? "here" : "portable"; });

}  // namespace
}  // namespace sape2::io
