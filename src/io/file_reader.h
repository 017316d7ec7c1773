#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sape2::io {

/// A whole file mapped into memory, copy-on-write: writes to the memory never reach the file.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace sape2::io
