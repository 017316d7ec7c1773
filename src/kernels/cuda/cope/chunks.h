#pragma once

#include "kernels/cuda/common/tile_layout.h"

#include <algorithm>
#include <cstdint>

/// How the backward pass of contextual positions is divided, in plain C++.
namespace sape2::kernels::cuda::cope {

/// Blocks of the backward pass at most: two for each multiprocessor of a large GPU. Each has
/// partial sums of its own.
inline constexpr std::int64_t kMostBlocks = 264;

/// Blocks that share the query tiles of a head. With more than one, cope_keys_kernel adds up their
/// gradients of keys and values.
inline int chunks_of_head(std::int64_t batch_heads, std::int64_t tokens) {
  if (batch_heads == 0 || batch_heads >= kMostBlocks) return 1;
  const std::int64_t tiles = (tokens + kRowTile - 1) / kRowTile;
  return static_cast<int>(std::min(tiles, kMostBlocks / batch_heads));
}

}  // namespace sape2::kernels::cuda::cope
