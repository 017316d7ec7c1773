#include "data/files.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"

#include "data/text.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const char* verb, const fs::path& path, int error) {
  throw Error(fmt::format("cannot {} {}: {}", verb, in_quotes(path),
                          std::generic_category().message(error)));
}

}  // namespace

Bytes read_file(const fs::path& path, std::uint64_t limit) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw Error(fmt::format("there is no file {}", in_quotes(path)));
  if (fs::is_directory(status)) {
    throw Error(fmt::format("{} is a folder, expected a file", in_quotes(path)));
  }
  if (!fs::is_regular_file(status)) {
    throw Error(fmt::format("{} is not a regular file", in_quotes(path)));
  }
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) fail("read", path, error.value());
  if (size > limit) {
    throw Error(fmt::format("{} has {} bytes, expected at most {}", in_quotes(path), grouped(size),
                            grouped(limit)));
  }
  // Not by a stream of C++, which would bring 400 KB of locales into sape2-predict.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) fail("read", path, errno);
  Bytes bytes(size);
  if (std::fread(bytes.data(), 1, size, file.get()) != size) fail("read", path, EIO);
  return bytes;
}

Bytes read_maybe_gzip(const fs::path& path, std::uint64_t limit) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(fmt::format("there is no file {}", in_quotes(path)));
  }
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) fail("read", path, errno);
  Bytes bytes;
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunk);
    const int count = gzread(file.get(), bytes.data() + before, kChunk);
    int code = Z_OK;
    const char* reason = gzerror(file.get(), &code);
    if (count < 0 || code == Z_BUF_ERROR) {
      throw Error(fmt::format("{} is truncated or damaged ({})", in_quotes(path),
                              code == Z_BUF_ERROR ? "unexpected end of file" : reason));
    }
    bytes.resize(before + static_cast<std::size_t>(count));
    if (count == 0) return bytes;
    if (bytes.size() > limit) {
      throw Error(
          fmt::format("{} holds more than the {} bytes expected", in_quotes(path), grouped(limit)));
    }
  }
}

void write_file(const fs::path& path, std::span<const std::uint8_t> bytes) {
  io::write_file(path, std::as_bytes(bytes));
}

void create_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail("create the folder", path, error.value());
}

}  // namespace sape2::data
