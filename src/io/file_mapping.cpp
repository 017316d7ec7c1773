#include "io/file_mapping.h"

#include "io/file_reader.h"

#include <sys/mman.h>

namespace sape2::io {
namespace {

#ifdef MAP_POPULATE
// Every byte is looked at soon: one call instead of an interruption for each page.
constexpr int kFlags = MAP_PRIVATE | MAP_POPULATE;
#else
constexpr int kFlags = MAP_PRIVATE;
#endif

}  // namespace

FileMapping::FileMapping(const std::filesystem::path& path) {
  const FileReader file(path);
  const std::uint64_t size = file.size();
  if (size == 0 || size > SIZE_MAX) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, kFlags, file.descriptor(), 0);
  if (memory != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(memory), size};
}

FileMapping::~FileMapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace sape2::io
