#include "io/file_reader.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace sape2::io {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error("cannot read " + in_quotes(path) + ": " + reason);
}

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  fail(path, std::generic_category().message(error));
}

void check_regular(const std::filesystem::path& path, const struct stat& status) {
  if (S_ISDIR(status.st_mode)) fail(path, "it is a folder, expected a file");
  if (!S_ISREG(status.st_mode)) fail(path, "it is not a regular file");
}

}  // namespace

FileReader::FileReader(const std::filesystem::path& path)
    : path_(path),
      // O_NONBLOCK: a named pipe must be refused below, not waited for.
      descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) {
    if (errno == ENOENT) fail(path_, "there is no such file");
    fail(path_, errno);
  }
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail(path_, errno);
    check_regular(path_, status);
    size_ = static_cast<std::uint64_t>(status.st_size);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

FileReader::~FileReader() {
  ::close(descriptor_);
}

void FileReader::read(std::uint64_t begin, std::span<std::byte> target) const {
  while (!target.empty()) {
    const ssize_t count =
        ::pread(descriptor_, target.data(), target.size(), static_cast<off_t>(begin));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(path_, errno);
    }
    if (count == 0) fail(path_, "it became shorter while it was read");
    begin += static_cast<std::uint64_t>(count);
    target = target.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace sape2::io
