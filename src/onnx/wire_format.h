#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sape2::onnx {

/// One message in the wire format of Protocol Buffers, written field by field. An ONNX file needs
/// these four kinds of fields and nothing else, so that this takes the place of libprotobuf and
/// libonnx (five megabytes, and their headers' versions would have to fit each other).
class Message {
 public:
  void integer(std::uint32_t field, std::int64_t value);
  void number(std::uint32_t field, float value);
  void text(std::uint32_t field, std::string_view value);
  void message(std::uint32_t field, const Message& value) { text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(std::uint32_t field, std::uint32_t kind);
  void varint(std::uint64_t value);

  std::string bytes_;
};

}  // namespace sape2::onnx
