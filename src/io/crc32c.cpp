#include "sape2/io/crc32c.h"

#include <array>
#include <cstring>

// Ours, because the reader of model files is to need no library (Debian 12 has none for CRC-32C;
// zlib's and libarchive's are of another polynomial).
namespace sape2::io {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

// tables[k][b]: the effect of byte b followed by k zero bytes, so that eight bytes go at once.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}();

// `crc` is not inverted in these.
uint32_t crc32c_by_tables(const unsigned char* data, std::size_t bytes, uint32_t crc) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const uint32_t low =
        crc ^ (static_cast<uint32_t>(data[0]) | static_cast<uint32_t>(data[1]) << 8 |
               static_cast<uint32_t>(data[2]) << 16 | static_cast<uint32_t>(data[3]) << 24);
    crc = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^ kTables[5][(low >> 16) & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][data[4]] ^ kTables[2][data[5]] ^ kTables[1][data[6]] ^
          kTables[0][data[7]];
  }
  for (; bytes > 0; --bytes, ++data) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xFF];
  return crc;
}

#ifdef __x86_64__
// SSE 4.2 has an instruction for this very polynomial: five times as fast as the tables.
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(const unsigned char* data,
                                                                 std::size_t bytes, uint32_t crc) {
  uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; bytes > 0; --bytes, ++data) crc = __builtin_ia32_crc32qi(crc, *data);
  return crc;
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~crc32c_by_instruction(data, bytes.size(), ~before);
#endif
  return ~crc32c_by_tables(data, bytes.size(), ~before);
}

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return ~crc32c_by_tables(data, bytes.size(), ~before);
}

}  // namespace sape2::io
