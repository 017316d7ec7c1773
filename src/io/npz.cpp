#include "sape2/io/npz.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace sape2::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays are written as they lie in memory");

constexpr std::uint16_t kZipVersion = 20;  // ZIP 2.0
constexpr std::uint16_t kNameIsUtf8 = 0x0800;
constexpr std::uint16_t kFirstDayOfDos = 0x0021;  // 1 January 1980: files depend on content alone
constexpr std::uint64_t kLargestZip = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMostEntries = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kNpyAlignment = 64;

/// Little-endian numbers, one after another.
class Record {
 public:
  Record& u16(std::uint64_t value) { return number(value, 2); }
  Record& u32(std::uint64_t value) { return number(value, 4); }
  Record& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& number(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
    return *this;
  }
  std::string bytes_;
};

struct Entry {
  std::string name;
  std::uint32_t checksum;
  std::uint64_t size, offset;
};

const char* type_text(const std::string& name, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "<f4";
    case at::kDouble:
      return "<f8";
    case at::kHalf:
      return "<f2";
    case at::kLong:
      return "<i8";
    case at::kInt:
      return "<i4";
    case at::kByte:
      return "|u1";
    case at::kBool:
      return "|b1";
    default:
      throw Error("the array " + in_quotes(name) + " is of type " + c10::toString(type) +
                  ", which NumPy's files have no name for");
  }
}

std::string npy_header(const std::string& name, const at::Tensor& tensor) {
  std::string shape;
  for (const std::int64_t size : tensor.sizes()) shape += std::to_string(size) + ", ";
  std::string text = std::string("{'descr': '") + type_text(name, tensor.scalar_type()) +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kBefore = 10;  // magic, version, length
  const std::size_t used = kBefore + text.size() + 1;
  text.append((kNpyAlignment - used % kNpyAlignment) % kNpyAlignment, ' ');
  text += '\n';
  return Record()
      .text("\x93NUMPY")
      .text(std::string("\x01\x00", 2))
      .u16(text.size())
      .text(text)
      .bytes();
}

std::uint32_t checksum_of(std::string_view header, std::string_view data) {
  uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size());
  sum = crc32_z(sum, reinterpret_cast<const Bytef*>(data.data()), data.size());
  return static_cast<std::uint32_t>(sum);
}

// What a local header and the central directory both say of an entry.
Record& describe(Record& record, const Entry& entry) {
  return record.u16(kZipVersion)
      .u16(kNameIsUtf8)
      .u16(0)  // stored
      .u16(0)
      .u16(kFirstDayOfDos)
      .u32(entry.checksum)
      .u32(entry.size)
      .u32(entry.size)
      .u16(entry.name.size())
      .u16(0);
}

}  // namespace

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  if (tensors.size() > kMostEntries) {
    throw Error("cannot write " + in_quotes(path) + ": a ZIP file holds at most " +
                std::to_string(kMostEntries) + " arrays");
  }
  AtomicFile file(path);
  std::vector<Entry> entries;
  std::uint64_t offset = 0;
  const auto write = [&](std::string_view bytes) {
    offset += bytes.size();
    if (offset > kLargestZip) {
      throw Error("cannot write " + in_quotes(path) +
                  ": it would be larger than 4 GiB; write safetensors instead");
    }
    file.write(bytes);
  };
  for (const auto& [name, given] : tensors) {
    const at::Tensor tensor = given.detach().cpu().contiguous();
    const std::string header = npy_header(name, tensor);
    const std::string_view data(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    const Entry entry{name + ".npy", checksum_of(header, data), header.size() + data.size(),
                      offset};
    entries.push_back(entry);
    Record local;
    describe(local.u32(0x04034b50), entry).text(entry.name);
    write(local.bytes());
    write(header);
    write(data);
  }
  const std::uint64_t directory = offset;
  for (const Entry& entry : entries) {
    Record central;
    describe(central.u32(0x02014b50).u16(kZipVersion), entry)
        .u16(0)
        .u16(0)
        .u16(0)
        .u32(0)
        .u32(entry.offset)
        .text(entry.name);
    write(central.bytes());
  }
  write(Record()
            .u32(0x06054b50)
            .u16(0)
            .u16(0)
            .u16(entries.size())
            .u16(entries.size())
            .u32(offset - directory)
            .u32(directory)
            .u16(0)
            .bytes());
  file.commit();
}

}  // namespace sape2::io
