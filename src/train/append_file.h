#pragma once

#include <filesystem>
#include <string_view>

namespace sape2::train {

/// A file that grows at its end. Every write reaches the operating system at once, so that a killed
/// process loses nothing; failures are Errors of one sentence.
class AppendFile {
 public:
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  /// Flushes to the disk.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace sape2::train
