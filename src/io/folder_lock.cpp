#include "sape2/io/folder_lock.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace sape2::io {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    throw Error("cannot open the folder " + in_quotes(folder) + ": " +
                std::generic_category().message(errno));
  }
  descriptor_ = std::shared_ptr<const int>(new int(descriptor), [](const int* held) {
    ::close(*held);
    delete held;
  });
}

// A file system without locks lets everybody in, as if each were alone.
bool FolderLock::lock(int operation) const {
  int failed = 0;
  do {
    failed = ::flock(*descriptor_, operation);
  } while (failed != 0 && errno == EINTR);
  return failed == 0 || errno != EWOULDBLOCK;
}

std::optional<FolderLock> FolderLock::take(const std::filesystem::path& folder) {
  FolderLock lock(folder);
  return lock.lock(LOCK_EX | LOCK_NB) ? std::optional(std::move(lock)) : std::nullopt;
}

FolderLock FolderLock::await(const std::filesystem::path& folder) {
  FolderLock lock(folder);
  lock.lock(LOCK_EX);
  return lock;
}

}  // namespace sape2::io
