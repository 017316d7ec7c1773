#include "sape2/io/atomic_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

namespace sape2::io {
namespace fs = std::filesystem;
namespace {

// A name that no other process or thread is using at this moment.
std::string unique_suffix() {
  static std::atomic<unsigned> counter{0};
  std::string suffix = ".";
  suffix += std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
  return suffix;
}

fs::path behind_links(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_symlink(path, ignored)) return path;
  std::error_code error;
  fs::path target = fs::weakly_canonical(path, error);
  return error ? path : target;
}

// Makes the rename itself survive a power cut; best effort, as not every file system allows it.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path), target_(behind_links(path)) {
  if (!target_.has_filename()) fail(EISDIR);
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (status.type() == fs::file_type::none) fail(error.value());
  if (fs::is_directory(status)) fail(EISDIR);
  // Renaming over a device or a pipe would replace it.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw Error("cannot write " + in_quotes(path_) + ": it exists and is not a regular file");
  }
  const fs::path folder = folder_of(target_);
  // A long file name is cut, so that the temporary one is not too long where the final one fits.
  const std::string suffix = unique_suffix();
  std::string stem = "." + target_.filename().native();
  stem.resize(std::min(stem.size(), std::size_t{255} - suffix.size()));
  temporary_ = folder / (stem + suffix);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int reason = errno;
    std::error_code unknown;
    if (reason == ENOENT && !fs::exists(folder, unknown)) {
      throw Error("cannot write " + in_quotes(path_) + ": there is no folder " + in_quotes(folder));
    }
    if (reason == ENOENT) {  // such as in /proc
      throw Error("cannot write " + in_quotes(path_) + ": no files can be made in " +
                  in_quotes(folder));
    }
    fail(reason);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(errno);
  // Some file systems report a full disk or a lost connection only here.
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail(errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  sync_folder(folder_of(target_));
}

void AtomicFile::fail(int error) const {
  std::string reason = std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT) reason = "the disk is full";
  if (error == EISDIR) reason = "it is a folder, expected a file name";
  throw Error("cannot write " + in_quotes(path_) + ": " + reason);
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file(const fs::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace sape2::io
