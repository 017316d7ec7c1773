#pragma once

#include "kernels/cuda/common/tile_layout.h"

/// Shared memory of the kernels of contextual positions without the table values, in plain C++.
namespace sape2::kernels::cuda::cope {

/// Steps of one query, (position, gradient of the bias) for all keys of a tile; an odd number, so
/// that queries fall into different banks.
inline constexpr int kStepPitch = kRowTile + 1;

/// Backward, for the steps, then for the gradients of logits; in float32 first for the table, too.
SAPE2_HOST_DEVICE constexpr int exchange_bytes(int element_bytes, int tile) {
  const int steps = kRowTile * kStepPitch * 8;
  return element_bytes == 4 && tile > steps ? tile : steps;
}

/// Backward has a tile of its own for the table only in 16 bits.
SAPE2_HOST_DEVICE constexpr bool table_is_apart(int element_bytes) {
  return element_bytes == 2;
}

/// Four tiles of 64 rows: queries, keys, values, and 64 rows of the table.
template <int ElementBytes>
SAPE2_HOST_DEVICE constexpr int forward_smem_bytes(int head_size) {
  return kSharedAlignment + 4 * TileLayout<ElementBytes>::bytes(kRowTile, head_size);
}
template <int ElementBytes>
SAPE2_HOST_DEVICE constexpr int backward_smem_bytes(int head_size) {
  using Layout = TileLayout<ElementBytes>;
  const int tile = Layout::bytes(kRowTile, head_size);
  return kSharedAlignment + (table_is_apart(ElementBytes) ? 5 : 4) * tile +
         Layout::bytes(kRowTile, kRowTile) + exchange_bytes(ElementBytes, tile) + kRowTile * 4;
}

/// The element's size known at run time; `head_size`: compiled.
inline int smem_bytes(int element_bytes, int head_size, bool backward) {
  if (element_bytes == 4)
    return backward ? backward_smem_bytes<4>(head_size) : forward_smem_bytes<4>(head_size);
  return backward ? backward_smem_bytes<2>(head_size) : forward_smem_bytes<2>(head_size);
}

}  // namespace sape2::kernels::cuda::cope
