#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace sape2::io {

/// Reads a regular file into memory of ours. Not mapped: a mapping of a file that somebody shortens
/// ends the process (SIGBUS), and one that somebody changes is no longer what was checked. Reading
/// costs one copy of pages that are looked at whole anyway.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Bytes of the file when it was opened.
  std::uint64_t size() const { return size_; }

  /// Fills `target` from a place in the file; a file that has become shorter is an Error.
  void read(std::uint64_t begin, std::span<std::byte> target) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace sape2::io
