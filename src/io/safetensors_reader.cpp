#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/large_block.h"
#include "sape2/io/safetensors.h"

#include "io/file_reader.h"
#include "io/safetensors_header.h"
#include "io/shape_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>

namespace sape2::io {

static_assert(std::endian::native == std::endian::little,
              "tensors are read as they lie in the file, which is little-endian");

namespace {

constexpr std::size_t kLengthBytes = 8;

std::string in_bytes(std::uint64_t count) {
  return std::to_string(count) + " bytes";
}

const std::string kCutOff = "; it was probably cut off, fetch or write it again";

// A tensor's bytes have to begin where the previous one's ended, at `expected_begin`.
void check_place(const HeaderEntry& entry, std::uint64_t expected_begin, std::uint64_t data_bytes,
                 const std::string& source) {
  const std::string context =
      source + " is not a valid safetensors file: tensor " + in_quotes(entry.name);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw FormatError(context + " lies at bytes " + std::to_string(entry.begin) + " to " +
                      std::to_string(entry.end) + ", expected a range within the file's " +
                      in_bytes(data_bytes) + " of data" + (entry.end > data_bytes ? kCutOff : ""));
  }
  if (entry.begin != expected_begin) {
    throw FormatError(context + " begins at byte " + std::to_string(entry.begin) + ", expected " +
                      std::to_string(expected_begin) + ": tensors must follow each other without " +
                      (entry.begin < expected_begin ? "overlap" : "holes"));
  }
  const std::uint64_t needed = tensor_bytes(entry.shape, entry.dtype, context);
  if (entry.end - entry.begin != needed) {
    throw FormatError(context + " has " + in_bytes(entry.end - entry.begin) + ", expected " +
                      std::to_string(needed) + " for " + std::string(dtype_name(entry.dtype)) +
                      " " + shape_text(entry.shape));
  }
}

[[noreturn]] void fail(std::string_view source, const std::string& reason) {
  throw FormatError(in_quotes(source) + " is not a valid safetensors file: " + reason);
}

// An image given in a model's place is the likeliest mistake; null if it is none.
const char* image_kind(std::span<const std::byte> head) {
  const auto begins_with = [&](std::string_view signature) {
    return head.size() >= signature.size() &&
           std::memcmp(head.data(), signature.data(), signature.size()) == 0;
  };
  return begins_with("\x89PNG") ? "PNG" : begins_with("\xFF\xD8\xFF") ? "JPEG" : nullptr;
}

// What the first bytes of a file of `file_bytes` say of its header's length.
std::uint64_t header_length(std::span<const std::byte> head, std::uint64_t file_bytes,
                            std::string_view source) {
  if (file_bytes == 0) fail(source, "it is empty");
  if (file_bytes < kLengthBytes) {
    fail(source,
         "it has " + in_bytes(file_bytes) + ", expected at least 8 for the header's length");
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, head.data(), kLengthBytes);
  if (header_bytes > kLargestHeader) {
    if (const char* kind = image_kind(head))
      fail(source, std::string("it is a ") + kind + " image");
    fail(source, "its header claims " + in_bytes(header_bytes) + ", expected at most " +
                     std::to_string(kLargestHeader));
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    fail(source, "its header claims " + in_bytes(header_bytes) + ", but the file has only " +
                     std::to_string(file_bytes - kLengthBytes) + " after the length" + kCutOff);
  }
  return header_bytes;
}

// Metadata and tensors, without their bytes, of a file with so many bytes of data.
SafetensorsContent parse_content(std::span<const std::byte> header_text, std::uint64_t data_bytes,
                                 std::string_view source) {
  Header header =
      parse_header({reinterpret_cast<const char*>(header_text.data()), header_text.size()}, source);
  std::ranges::sort(header.entries, {}, [](const HeaderEntry& entry) {
    return std::tie(entry.begin, entry.end, entry.name);
  });
  SafetensorsContent content{.metadata = std::move(header.metadata), .tensors = {}};
  content.tensors.reserve(header.entries.size());
  std::uint64_t position = 0;
  for (HeaderEntry& entry : header.entries) {
    check_place(entry, position, data_bytes, in_quotes(source));
    position = entry.end;
    content.tensors.push_back({.name = std::move(entry.name),
                               .dtype = entry.dtype,
                               .shape = std::move(entry.shape),
                               .bytes = {}});
  }
  if (position != data_bytes) {
    fail(source, "it has " + in_bytes(data_bytes) + " of data, expected " +
                     std::to_string(position) + ", the end of its last tensor");
  }
  return content;
}

// Tensors lie one after the other.
void place_tensors(SafetensorsContent& content, std::span<const std::byte> data) {
  for (TensorView& tensor : content.tensors) {
    const std::uint64_t bytes = tensor_bytes(tensor.shape, tensor.dtype, tensor.name);
    tensor.bytes = data.first(bytes);
    data = data.subspan(bytes);
  }
}

}  // namespace

std::uint64_t tensor_bytes(const std::vector<std::int64_t>& shape, Dtype dtype,
                           const std::string& context) {
  // The strides of an empty tensor have to fit too, so a 0 counts as 1 for the overflow.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::uint64_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const std::int64_t size : shape) {
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
    if (bytes > kMost / factor) {
      throw FormatError(context + " has the shape " + shape_text(shape) + ", whose size overflows");
    }
    bytes *= factor;
    empty = empty || size == 0;
  }
  return empty ? 0 : bytes;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view source) {
  const std::uint64_t header_bytes = header_length(file, file.size(), source);
  const auto header = file.subspan(kLengthBytes, header_bytes);
  const auto data = file.subspan(kLengthBytes + header_bytes);
  SafetensorsContent content = parse_content(header, data.size(), source);
  place_tensors(content, data);
  return content;
}

SafetensorsFile SafetensorsFile::read(const std::filesystem::path& path, bool with_data) {
  const FileReader reader(path);
  std::array<std::byte, kLengthBytes> length{};
  const auto head = std::span(length).first(std::min<std::uint64_t>(reader.size(), length.size()));
  reader.read(0, head);
  std::vector<std::byte> header(header_length(head, reader.size(), path.native()));
  reader.read(kLengthBytes, header);
  const std::uint64_t begin = kLengthBytes + header.size(), bytes = reader.size() - begin;

  SafetensorsFile file;
  file.path_ = path;
  file.content_ = parse_content(header, bytes, path.native());
  if (with_data) {
    const std::shared_ptr<std::byte> memory = base::large_block(bytes);
    reader.read(begin, {memory.get(), bytes});
    place_tensors(file.content_, {memory.get(), bytes});
    file.memory_ = memory;
  }
  file.index_tensors();
  return file;
}

void SafetensorsFile::index_tensors() {
  const auto& tensors = content_.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) index_.emplace(tensors[i].name, i);
}

SafetensorsFile SafetensorsFile::view(std::span<const std::byte> bytes, std::string_view name) {
  SafetensorsFile file;
  file.path_ = name;
  file.content_ = parse_safetensors(bytes, name);
  file.index_tensors();
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  return read(path, /*with_data=*/true);
}

SafetensorsFile SafetensorsFile::open_header(const std::filesystem::path& path) {
  return read(path, /*with_data=*/false);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &content_.tensors[found->second];
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) throw Error(in_quotes(path_) + " has no tensor " + in_quotes(name));
  return *tensor;
}

}  // namespace sape2::io
