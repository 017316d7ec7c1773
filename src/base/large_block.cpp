#include "sape2/base/large_block.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
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
  // No object may be larger than a difference of pointers can say.
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  void* memory = nullptr;
  if (bytes >= most || ::posix_memalign(&memory, alignment, std::max(bytes, kLine)) != 0) {
    throw std::bad_alloc();
  }
#ifdef MADV_HUGEPAGE
  // Whole pages alone: what lies behind the block is somebody else's. A refusal costs time, nothing
  // else.
  if (large) (void)::madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
#endif
  return Block(static_cast<std::byte*>(memory));
}

}  // namespace sape2::base
