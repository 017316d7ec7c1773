#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sape2::io {

/// A regular file as memory, for reading. See FileReader for why most files are read instead.
class FileMapping {
 public:
  /// Throws the errors of FileReader.
  explicit FileMapping(const std::filesystem::path& path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  /// Empty where the file is, or where the system cannot map it.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace sape2::io
