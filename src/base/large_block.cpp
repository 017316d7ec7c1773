#include "sape2/base/large_block.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace sape2::base {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kFewestPages = 4;  // for fewer, what is lost at the end counts

}  // namespace

void FreeBlock::operator()(std::byte* block) const {
  std::free(block);
}

Block large_block(std::size_t bytes) {
  const bool large = bytes >= kFewestPages * kPage;
  const std::size_t alignment = large ? kPage : kLine;
  // A size that cannot be rounded up stays as it is, and is refused.
  const std::size_t rounded = std::max(bytes, (bytes + kLine - 1) / kLine * kLine);
  auto* block = static_cast<std::byte*>(std::aligned_alloc(alignment, std::max(rounded, kLine)));
  if (block == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Whole pages alone: what lies behind the block is somebody else's. A refusal costs time, nothing
  // else.
  if (large) (void)::madvise(block, bytes / kPage * kPage, MADV_HUGEPAGE);
#endif
  return Block(block);
}

}  // namespace sape2::base
