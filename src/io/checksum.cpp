#include "sape2/io/checksum.h"

#include "sape2/base/in_quotes.h"
#include "sape2/io/crc32c.h"

#include <array>
#include <charconv>
#include <map>

namespace sape2::io {
namespace {

class Checksum {
 public:
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  void add(std::span<const std::byte> bytes) { value_ = crc32c(bytes, value_); }

  void add(const TensorView& tensor) {
    std::string description = tensor.name + " ";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) description += ",";
      description += std::to_string(tensor.shape[i]);
    }
    add(description + "\n");
    add(tensor.bytes);
  }

  std::string text() const {
    std::array<char, 8> digits{};
    const auto end = std::to_chars(digits.begin(), digits.end(), value_, 16).ptr;
    const std::string number(digits.begin(), end);
    return "crc32c:" + std::string(digits.size() - number.size(), '0') + number;
  }

 private:
  std::uint32_t value_ = 0;
};

}  // namespace

std::string checksum_of(const Metadata& metadata, std::span<const TensorView> tensors) {
  Checksum checksum;
  for (const auto& [key, value] : metadata) {
    if (key != kChecksumKey) checksum.add(key + "=" + value + "\n");
  }
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  for (const auto& [name, tensor] : by_name) checksum.add(*tensor);
  return checksum.text();
}

std::string content_checksum(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  return checksum_of(file.metadata(), file.tensors());
}

void verify_checksum(const SafetensorsFile& file) {
  const auto expected = file.metadata().find(kChecksumKey);
  if (expected == file.metadata().end()) return;
  const std::string actual = checksum_of(file.metadata(), file.tensors());
  if (actual == expected->second) return;
  throw FormatError(in_quotes(file.path()) + " was damaged or changed after it was written: its " +
                    kChecksumKey + " is " + in_quotes(expected->second) + ", its content gives " +
                    in_quotes(actual) +
                    "; fetch or write it again or, if the change is meant, remove that key from "
                    "its metadata");
}

}  // namespace sape2::io
