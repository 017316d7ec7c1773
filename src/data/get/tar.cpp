#include "data/get/tar.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <span>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kLargestMember = std::int64_t{512} << 20;

// The unpacked bytes of a gzip file. zlib's own reader, because libarchive's passes over the
// checksum at the end.
class GzipStream {
 public:
  explicit GzipStream(const fs::path& path) : file_(gzopen(path.c_str(), "rb"), gzclose) {
    if (!file_) throw Error(fmt::format("cannot read {}", in_quotes(path)));
    gzbuffer(file_.get(), static_cast<unsigned>(chunk_.size()));
  }

  /// The next bytes: none at the end, nothing at all if the file is truncated or damaged.
  std::optional<std::span<const std::uint8_t>> next() {
    const int count = gzread(file_.get(), chunk_.data(), static_cast<unsigned>(chunk_.size()));
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (count < 0 || code == Z_BUF_ERROR) return std::nullopt;
    return std::span(chunk_).first(static_cast<std::size_t>(count));
  }

 private:
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  Bytes chunk_ = Bytes(std::size_t{1} << 18);
};

la_ssize_t pass_on(archive* reader, void* stream, const void** data) {
  const auto bytes = static_cast<GzipStream*>(stream)->next();
  if (!bytes) {
    archive_set_error(reader, EIO, "gzip finds no whole file");
    return ARCHIVE_FATAL;
  }
  *data = bytes->data();
  return static_cast<la_ssize_t>(bytes->size());
}

struct Close {
  void operator()(archive* archive) const { archive_read_free(archive); }
};
using Reader = std::unique_ptr<archive, Close>;

[[noreturn]] void fail(const fs::path& path, const char* reason) {
  throw Error(fmt::format("the archive {} is no tar archive, or truncated or damaged: {}",
                          in_quotes(path),
                          reason != nullptr ? printable(reason) : "it ends early"));
}

[[noreturn]] void fail(const fs::path& path, const Reader& reader) {
  fail(path, archive_error_string(reader.get()));
}

std::string path_of(archive_entry* entry) {
  const char* path = archive_entry_pathname(entry);
  return path == nullptr ? "" : path;  // no text in this locale, so none of ours
}

}  // namespace

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

void read_tar_gz(const fs::path& path, const std::function<bool(const std::string&)>& wanted,
                 const std::function<void(const std::string&, const Bytes&)>& take) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(fmt::format("there is no file {}", in_quotes(path)));
  }
  GzipStream stream(path);
  const Reader reader(archive_read_new());
  // Of the kinds that libarchive knows, the one that data sets come in.
  if (archive_read_support_format_tar(reader.get()) != ARCHIVE_OK ||
      archive_read_open(reader.get(), &stream, nullptr, pass_on, nullptr) != ARCHIVE_OK) {
    fail(path, reader);
  }
  for (archive_entry* entry = nullptr;;) {
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) break;
    if (status < ARCHIVE_WARN) fail(path, reader);
    // Also of files that are passed over: a small archive can hold more than anybody can wait for.
    const std::int64_t size = archive_entry_size(entry);
    if (size < 0 || size > kLargestMember) {
      throw Error(fmt::format("the archive {} is not one of ours: a file in it is too large",
                              in_quotes(path)));
    }
    const std::string name = path_of(entry);
    const bool plain =
        archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
    if (!plain || !wanted(name)) continue;
    Bytes content(static_cast<std::size_t>(size));
    const la_ssize_t count = archive_read_data(reader.get(), content.data(), content.size());
    if (count != static_cast<la_ssize_t>(content.size())) fail(path, reader);
    take(name, content);
  }
  // gzip's checksum comes last, behind some zeros.
  std::size_t behind = 0;
  for (auto rest = stream.next(); !rest || !rest->empty(); rest = stream.next()) {
    if (!rest) fail(path, "gzip's checksum does not fit");
    behind += rest->size();
    if (behind > kLargestMember) fail(path, "too much follows its end");
  }
}

}  // namespace sape2::data
