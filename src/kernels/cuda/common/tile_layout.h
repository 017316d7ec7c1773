#pragma once

#include "kernels/cuda/host/host_device.h"

/// How matrices lie in shared memory, as far as the host needs to know: sizes in bytes.
namespace sape2::kernels::cuda {

/// One block: four warps, each with 16 rows of a 64-row tile.
inline constexpr int kThreads = 128;
inline constexpr int kWarps = 4;
inline constexpr int kRowTile = 64;

/// Shared memory begins at a multiple of this, which swizzled tiles count on.
inline constexpr int kSharedAlignment = 1024;

SAPE2_HOST_DEVICE constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Tiles of elements of this many bytes; see Tile.
template <int ElementBytes>
struct TileLayout {
  SAPE2_HOST_DEVICE static constexpr bool swizzled(int columns) {
    return ElementBytes == 2 && columns % 64 == 0;
  }
  SAPE2_HOST_DEVICE static constexpr int pitch(int columns) {
    return ElementBytes == 4 ? columns * 4 + 32 : round_up(columns * 2, 32) + 16;
  }
  SAPE2_HOST_DEVICE static constexpr int bytes(int rows, int columns) {
    return rows * (swizzled(columns) ? columns * 2 : pitch(columns));
  }
};

/// The size of a tile, whatever says the size of its elements.
SAPE2_HOST_DEVICE constexpr int tile_bytes(int element_bytes, int rows, int columns) {
  return element_bytes == 4 ? TileLayout<4>::bytes(rows, columns)
                            : TileLayout<2>::bytes(rows, columns);
}

}  // namespace sape2::kernels::cuda
