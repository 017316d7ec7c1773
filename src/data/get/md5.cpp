#include "data/get/md5.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <vector>

namespace sape2::data {
namespace {

constexpr std::array<std::array<int, 4>, 4> kShifts{
    {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

// floor(2^32 · |sin(i + 1)|)
constexpr std::array<std::uint32_t, 64> kSines{
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

std::uint32_t little_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
         std::uint32_t{bytes[3]} << 24;
}

}  // namespace

void Md5::take_block(const std::uint8_t* block) {
  auto [a, b, c, d] = state_;
  for (int i = 0; i < 64; ++i) {
    const int round = i / 16;
    std::uint32_t mixed = 0;
    int word = 0;
    switch (round) {
      case 0:
        mixed = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c);
        word = (5 * i + 1) % 16;
        break;
      case 2:
        mixed = b ^ c ^ d;
        word = (3 * i + 5) % 16;
        break;
      default:
        mixed = c ^ (b | ~d);
        word = (7 * i) % 16;
        break;
    }
    const std::uint32_t sum = a + mixed + kSines[i] + little_endian(block + 4 * word);
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[round][i % 4]);
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::update(std::span<const std::uint8_t> bytes) {
  std::size_t filled = length_ % pending_.size();
  length_ += bytes.size();
  while (!bytes.empty()) {
    if (filled == 0 && bytes.size() >= pending_.size()) {
      take_block(bytes.data());
      bytes = bytes.subspan(pending_.size());
      continue;
    }
    const std::size_t count = std::min(pending_.size() - filled, bytes.size());
    std::copy_n(bytes.begin(), count, pending_.begin() + static_cast<std::ptrdiff_t>(filled));
    bytes = bytes.subspan(count);
    filled += count;
    if (filled == pending_.size()) {
      take_block(pending_.data());
      filled = 0;
    }
  }
}

std::string Md5::finish() {
  const std::uint64_t bits = length_ * 8;
  constexpr std::array<std::uint8_t, 64> kPadding{0x80};
  const std::size_t filled = length_ % 64;
  update(std::span(kPadding).first((filled < 56 ? 56 : 120) - filled));
  std::array<std::uint8_t, 8> tail{};
  for (std::size_t i = 0; i < tail.size(); ++i) tail[i] = static_cast<std::uint8_t>(bits >> 8 * i);
  update(tail);
  std::string text;
  for (const std::uint32_t word : state_) {
    for (int i = 0; i < 4; ++i) text += fmt::format("{:02x}", word >> 8 * i & 0xFF);
  }
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
