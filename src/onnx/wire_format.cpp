#include "onnx/wire_format.h"

#include <bit>

namespace sape2::onnx {
namespace {

// Wire types.
constexpr std::uint32_t kVarint = 0;
constexpr std::uint32_t kLengthDelimited = 2;
constexpr std::uint32_t kFourBytes = 5;

}  // namespace

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
  bytes_.push_back(static_cast<char>(value));
}

void Message::tag(std::uint32_t field, std::uint32_t kind) {
  varint(field << 3 | kind);
}

void Message::integer(std::uint32_t field, std::int64_t value) {
  tag(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
}

void Message::number(std::uint32_t field, float value) {
  tag(field, kFourBytes);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
}

void Message::text(std::uint32_t field, std::string_view value) {
  tag(field, kLengthDelimited);
  varint(value.size());
  bytes_.append(value);
}

}  // namespace sape2::onnx
