#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace sape2::io {

/// A file that appears under its name only when it is complete: written under a temporary name in
/// the same folder, then renamed by commit(). Without commit() the temporary file is removed and
/// what was there before stays. Every failure is an Error of one sentence.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

  /// Flushes the file to the disk and gives it its name.
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;    // as given, for messages
  std::filesystem::path target_;  // behind symbolic links
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

/// Writes an AtomicFile at once.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sape2::io
