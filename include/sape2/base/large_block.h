#pragma once

#include <cstddef>
#include <memory>

namespace sape2::base {

struct FreeBlock {
  void operator()(std::byte* block) const;
};

/// Memory aligned to 64 bytes, not filled.
using Block = std::unique_ptr<std::byte, FreeBlock>;

/// A block for many numbers that are written at once, such as a model's weights. From 8 MB on it
/// lies in pages of 2 MB where the system has them: those are taken in a fraction of the time of
/// pages of 4 KB.
Block large_block(std::size_t bytes);

}  // namespace sape2::base
