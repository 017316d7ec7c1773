#pragma once

#include "sape2/base/error.h"
#include "sape2/io/dtype.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Reading and writing of safetensors files, without any framework. Ours, because the format's own
/// library is Rust and no C++ one is packaged.
///
/// Nothing in a file is trusted: sizes, offsets, names and types are checked against the format
/// before a tensor is handed out, and every fault is one sentence, thrown as FormatError.

namespace sape2::io {

/// A file that could be read but whose content is not what the format asks for: it was damaged, or
/// is of another kind. A file that cannot be read at all is a plain Error.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// The free-form strings of a file (`__metadata__`).
using Metadata = std::map<std::string, std::string>;

/// A tensor whose elements lie in memory that somebody else owns, row-major and little-endian.
/// They are not necessarily aligned to their type.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// What a file says: its metadata, and its tensors in the order in which they lie in the file.
struct SafetensorsContent {
  Metadata metadata;
  std::vector<TensorView> tensors;
};

/// Reads a file that is already in memory; the tensors are views into `file`.
/// `source` names the file in error messages.
SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view source);

/// A safetensors file in memory. Copies share the memory.
class SafetensorsFile {
 public:
  /// Reads a whole file; what happens to it afterwards does not matter. The header is checked
  /// before memory is taken for the tensors.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// Reads the header alone: metadata, names, types and shapes. The tensors have no bytes.
  static SafetensorsFile open_header(const std::filesystem::path& path);

  /// A file that is in memory already and stays there as long as this object and its copies.
  /// `name` stands for the path in messages.
  static SafetensorsFile view(std::span<const std::byte> file, std::string_view name);

  const std::filesystem::path& path() const { return path_; }
  const Metadata& metadata() const { return content_.metadata; }

  /// In the order in which they lie in the file. The bytes are valid as long as memory() is held.
  /// Writing to those of open() through a cast is allowed and never reaches the file.
  std::span<const TensorView> tensors() const { return content_.tensors; }

  /// The tensor of that name, or nullptr.
  const TensorView* find(std::string_view name) const;

  /// The tensor of that name, or an Error that names the file and the tensor.
  const TensorView& at(std::string_view name) const;

  /// Keeps the tensors' bytes alive beyond this object.
  std::shared_ptr<const void> memory() const { return memory_; }

 private:
  static SafetensorsFile read(const std::filesystem::path& path, bool with_data);
  void index_tensors();

  std::filesystem::path path_;
  std::shared_ptr<const void> memory_;
  SafetensorsContent content_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// Writes a file in the layout of the format's own implementation (tensors by falling alignment,
/// then by name; header padded to 8 bytes), whatever order they are given in. The file appears
/// under its name only when it is complete; a failure leaves what was there before.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata = {});

}  // namespace sape2::io
