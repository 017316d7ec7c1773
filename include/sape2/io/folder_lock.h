#pragma once

#include <filesystem>
#include <memory>
#include <optional>

namespace sape2::io {

/// Keeps other processes out of a folder, as far as they ask too. The folder is free again once the
/// last copy is gone or the process has ended, however it ended.
class FolderLock {
 public:
  /// Nothing if another process holds the folder. Throws Error if there is no such folder.
  static std::optional<FolderLock> take(const std::filesystem::path& folder);

  /// Waits for whoever holds it.
  static FolderLock await(const std::filesystem::path& folder);

 private:
  explicit FolderLock(const std::filesystem::path& folder);
  bool lock(int operation) const;

  std::shared_ptr<const int> descriptor_;
};

}  // namespace sape2::io
