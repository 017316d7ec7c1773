#include "train/append_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace sape2::train {

AppendFile::AppendFile(std::filesystem::path path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail(errno);
}

AppendFile::~AppendFile() {
  ::close(descriptor_);
}

void AppendFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::sync() {
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL) fail(errno);
}

void AppendFile::fail(int error) const {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error("cannot write " + in_quotes(path_) + ": " +
              (full ? "the disk is full" : std::generic_category().message(error)));
}

}  // namespace sape2::train
