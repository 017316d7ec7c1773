#include "io/mapped_file.h"

#include "sape2/error.h"
#include "sape2/in_quotes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace sape2::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error("cannot read " + in_quotes(path) + ": " + reason);
}

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  fail(path, std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe must be refused below, not waited for.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT) fail(path, "there is no such file");
    fail(path, errno);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, errno);
  if (S_ISDIR(status.st_mode)) fail(path, "it is a folder, expected a file");
  if (!S_ISREG(status.st_mode)) fail(path, "it is not a regular file");
  if (status.st_size == 0) return;  // an empty mapping is not possible

  const auto size = static_cast<std::size_t>(status.st_size);
  void* data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) fail(path, errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace sape2::io
