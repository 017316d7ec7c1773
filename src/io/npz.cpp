#include "sape2/io/npz.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"

#include <ATen/ATen.h>
#include <archive.h>
#include <archive_entry.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace sape2::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays are written as they lie in memory");

constexpr std::size_t kNpyAlignment = 64;

const char* type_text(const std::string& name, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "<f4";
    case at::kDouble:
      return "<f8";
    case at::kHalf:
      return "<f2";
    case at::kLong:
      return "<i8";
    case at::kInt:
      return "<i4";
    case at::kByte:
      return "|u1";
    case at::kBool:
      return "|b1";
    default:
      throw Error("the array " + in_quotes(name) + " is of type " + c10::toString(type) +
                  ", which NumPy's files have no name for");
  }
}

std::string npy_header(const std::string& name, const at::Tensor& tensor) {
  std::string shape;
  for (const std::int64_t size : tensor.sizes()) shape += std::to_string(size) + ", ";
  std::string text = std::string("{'descr': '") + type_text(name, tensor.scalar_type()) +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kBefore = 10;  // magic, version, length
  const std::size_t used = kBefore + text.size() + 1;
  text.append((kNpyAlignment - used % kNpyAlignment) % kNpyAlignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

/// A ZIP archive of stored files, written by libarchive into a file that appears when it is whole.
class ZipWriter {
 public:
  explicit ZipWriter(const std::filesystem::path& path)
      : path_(path), file_(path), archive_(archive_write_new()) {
    check(archive_write_set_format_zip(archive_.get()));
    check(archive_write_set_options(archive_.get(), "compression=store,hdrcharset=UTF-8"));
    check(archive_write_set_bytes_per_block(archive_.get(), 0));  // as they come, without padding
    check(archive_write_open(archive_.get(), this, nullptr, pass_on, nullptr));
  }

  // The entry has no time and no owner: files depend on their content alone.
  void add(const std::string& name, std::initializer_list<std::string_view> parts) {
    const std::unique_ptr<archive_entry, Destroy> entry(archive_entry_new());
    std::size_t size = 0;
    for (const std::string_view part : parts) size += part.size();
    archive_entry_set_pathname_utf8(entry.get(), name.c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(size));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    check(archive_write_header(archive_.get(), entry.get()));
    for (const std::string_view part : parts) {
      const la_ssize_t written = archive_write_data(archive_.get(), part.data(), part.size());
      check(written == static_cast<la_ssize_t>(part.size()) ? ARCHIVE_OK : ARCHIVE_FATAL);
    }
  }

  void commit() {
    check(archive_write_close(archive_.get()));
    file_.commit();
  }

 private:
  struct Destroy {
    void operator()(archive* archive) const { archive_write_free(archive); }
    void operator()(archive_entry* entry) const { archive_entry_free(entry); }
  };

  // Exceptions must not pass through libarchive's C code.
  static la_ssize_t pass_on(archive*, void* writer, const void* data, std::size_t length) {
    auto& self = *static_cast<ZipWriter*>(writer);
    try {
      // What libarchive still has to say once it has failed is for nobody.
      if (!self.failure_) self.file_.write({static_cast<const std::byte*>(data), length});
      return static_cast<la_ssize_t>(length);
    } catch (...) {
      self.failure_ = std::current_exception();
      return -1;
    }
  }

  void check(int status) const {
    if (failure_) std::rethrow_exception(failure_);
    if (status == ARCHIVE_OK) return;
    const char* reason = archive_error_string(archive_.get());
    throw Error("cannot write " + in_quotes(path_) + ": " +
                (reason != nullptr ? printable(reason) : "the archive cannot be made"));
  }

  std::filesystem::path path_;
  AtomicFile file_;
  std::exception_ptr failure_;
  std::unique_ptr<archive, Destroy> archive_;
};

}  // namespace

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  ZipWriter zip(path);
  for (const auto& [name, given] : tensors) {
    const at::Tensor tensor = given.detach().cpu().contiguous();
    zip.add(name + ".npy", {npy_header(name, tensor),
                            {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  zip.commit();
}

}  // namespace sape2::io
