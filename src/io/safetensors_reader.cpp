#include "sape2/error.h"
#include "sape2/in_quotes.h"
#include "sape2/io/safetensors.h"

#include "io/mapped_file.h"
#include "io/safetensors_header.h"
#include "io/shape_text.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>

namespace sape2::io {

static_assert(std::endian::native == std::endian::little,
              "tensors are mapped as they lie in the file, which is little-endian");

namespace {

constexpr std::size_t kLengthBytes = 8;

std::string in_bytes(std::uint64_t count) {
  return std::to_string(count) + " bytes";
}

// A tensor's bytes have to begin where the previous one's ended, at `expected_begin`.
void check_place(const HeaderEntry& entry, std::uint64_t expected_begin, std::uint64_t data_bytes,
                 const std::string& source) {
  const std::string context =
      source + " is not a valid safetensors file: tensor " + in_quotes(entry.name);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw FormatError(context + " lies at bytes " + std::to_string(entry.begin) + " to " +
                      std::to_string(entry.end) + ", expected a range within the file's " +
                      in_bytes(data_bytes) + " of data");
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
  const std::string name = in_quotes(source);
  const auto fail = [&](const std::string& reason) {
    throw FormatError(name + " is not a valid safetensors file: " + reason);
  };
  if (file.empty()) fail("it is empty");
  if (file.size() < kLengthBytes) {
    fail("it has " + in_bytes(file.size()) + ", expected at least 8 for the header's length");
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kLargestHeader) {
    fail("its header claims " + in_bytes(header_bytes) + ", expected at most " +
         std::to_string(kLargestHeader));
  }
  if (header_bytes > file.size() - kLengthBytes) {
    fail("its header claims " + in_bytes(header_bytes) + ", but the file has only " +
         std::to_string(file.size() - kLengthBytes) + " after the length");
  }
  const auto header_text = file.subspan(kLengthBytes, header_bytes);
  const auto data = file.subspan(kLengthBytes + header_bytes);

  Header header =
      parse_header({reinterpret_cast<const char*>(header_text.data()), header_text.size()}, source);
  std::ranges::sort(header.entries, {}, [](const HeaderEntry& entry) {
    return std::tie(entry.begin, entry.end, entry.name);
  });

  SafetensorsContent content{.metadata = std::move(header.metadata), .tensors = {}};
  content.tensors.reserve(header.entries.size());
  std::uint64_t position = 0;
  for (HeaderEntry& entry : header.entries) {
    check_place(entry, position, data.size(), name);
    position = entry.end;
    content.tensors.push_back({.name = std::move(entry.name),
                               .dtype = entry.dtype,
                               .shape = std::move(entry.shape),
                               .bytes = data.subspan(entry.begin, entry.end - entry.begin)});
  }
  if (position != data.size()) {
    fail("it has " + in_bytes(data.size()) + " of data, expected " + std::to_string(position) +
         ", the end of its last tensor");
  }
  return content;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto mapped = std::make_shared<MappedFile>(path);
  SafetensorsFile file;
  file.path_ = path;
  file.content_ = parse_safetensors(mapped->bytes(), path.native());
  file.mapping_ = std::move(mapped);
  const auto& tensors = file.content_.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) file.index_.emplace(tensors[i].name, i);
  return file;
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
