#include "data/get/tar.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <memory>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kReadAtOnce = 1 << 18;
constexpr std::int64_t kLargestMember = std::int64_t{512} << 20;

struct Close {
  void operator()(archive* archive) const { archive_read_free(archive); }
};
using Reader = std::unique_ptr<archive, Close>;

[[noreturn]] void fail(const fs::path& path, const Reader& reader) {
  const char* reason = archive_error_string(reader.get());
  throw Error(fmt::format("the archive {} is no tar archive, or truncated or damaged: {}",
                          in_quotes(path),
                          reason != nullptr ? printable(reason) : "it ends early"));
}

// Of every kind that libarchive knows, the one that data sets come in.
Reader open_tar_gz(const fs::path& path) {
  Reader reader(archive_read_new());
  if (archive_read_support_filter_gzip(reader.get()) != ARCHIVE_OK ||
      archive_read_support_format_tar(reader.get()) != ARCHIVE_OK ||
      archive_read_open_filename(reader.get(), path.c_str(), kReadAtOnce) != ARCHIVE_OK) {
    fail(path, reader);
  }
  return reader;
}

std::string file_name(const archive_entry* entry) {
  const char* path = archive_entry_pathname(const_cast<archive_entry*>(entry));
  if (path == nullptr) return "";  // no text in this locale, so none of ours
  const std::string text = path;
  return text.substr(text.find_last_of('/') + 1);
}

}  // namespace

void read_tar_gz(const fs::path& path, const std::function<bool(const std::string&)>& wanted,
                 const std::function<void(const std::string&, const Bytes&)>& take) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(fmt::format("there is no file {}", in_quotes(path)));
  }
  const Reader reader = open_tar_gz(path);
  for (archive_entry* entry = nullptr;;) {
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) return;
    if (status < ARCHIVE_WARN) fail(path, reader);
    // Also of files that are passed over: a small archive can hold more than anybody can wait for.
    if (archive_entry_size(entry) > kLargestMember) {
      throw Error(fmt::format("the archive {} is not one of ours: a file in it is too large",
                              in_quotes(path)));
    }
    const std::string name = file_name(entry);
    const bool plain =
        archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
    if (!plain || !wanted(name)) continue;
    Bytes content(static_cast<std::size_t>(archive_entry_size(entry)));
    const la_ssize_t count = archive_read_data(reader.get(), content.data(), content.size());
    if (count != static_cast<la_ssize_t>(content.size())) fail(path, reader);
    take(name, content);
  }
}

}  // namespace sape2::data
