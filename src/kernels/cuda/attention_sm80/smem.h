#pragma once

#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/host/params.h"

/// Shared memory of the sm_80 kernels, in plain C++: the kernels lay it out by these functions, and
/// dispatch compares them with what the device has.
namespace sape2::kernels::cuda::sm80 {

/// What sizes follow from.
struct SmemSizes {
  int element_bytes;
  int head_size;  // compiled
  BiasForm form;
  int width_x, width_y;  // of the distance form's vectors, to the next 16
};

SAPE2_HOST_DEVICE constexpr bool is_distance(BiasForm form) {
  return form == BiasForm::distance || form == BiasForm::distance_pair;
}

/// Keys of a tile forward; backward has narrow tiles, so that three blocks share a multiprocessor
/// and hide each other's waits.
SAPE2_HOST_DEVICE constexpr int forward_columns(int element_bytes, int head_size, BiasForm form) {
  return is_distance(form) || (element_bytes == 4 && head_size > 64) ? 32 : 64;
}
inline constexpr int kBackwardColumns = 32;

/// Three tiles' tokens, where finding them takes divisions.
SAPE2_HOST_DEVICE constexpr int column_token_bytes(bool in_grid, int columns) {
  return in_grid ? 3 * columns * 4 : 0;
}

/// One axis of one set at distance: 64 rows' vectors, two tiles of columns' vectors and their
/// squared lengths.
template <int ElementBytes>
SAPE2_HOST_DEVICE constexpr int centered_bytes(int columns, int width) {
  using Layout = TileLayout<ElementBytes>;
  return round_up(
      Layout::bytes(kRowTile, width) + 2 * Layout::bytes(columns, width) + 2 * columns * 4,
      kSharedAlignment);
}
template <int ElementBytes>
SAPE2_HOST_DEVICE constexpr int distance_bytes(int sets, int columns, int width_x, int width_y) {
  return kSharedAlignment + sets * (centered_bytes<ElementBytes>(columns, width_x) +
                                    centered_bytes<ElementBytes>(columns, width_y));
}

/// The direct form where keys stand along rows: two buffers of the queries' vectors, (entry,
/// query).
struct DirectColumnsSmem {
  static constexpr int kMostPlaces = kRowTile + 3;
  SAPE2_HOST_DEVICE static constexpr int pitch(int columns) { return columns + 8; }
  SAPE2_HOST_DEVICE static constexpr int buffer(int columns) {
    return (kMostPlaces + 1) * pitch(columns);
  }
  SAPE2_HOST_DEVICE static constexpr int bytes(int columns) {
    return kSharedAlignment + 2 * buffer(columns) * 4;
  }
};

/// What the compiler knows of it; the bias's own, which follows, depends on its vectors' width.
/// Forward: 64 queries; keys and values of two tiles; the columns' tokens.
SAPE2_HOST_DEVICE constexpr int forward_tiles_bytes(int element_bytes, int head_size,
                                                    BiasForm form) {
  const int columns = forward_columns(element_bytes, head_size, form);
  return tile_bytes(element_bytes, kRowTile, head_size) +
         4 * tile_bytes(element_bytes, columns, head_size) +
         column_token_bytes(form == BiasForm::direct, columns);
}
/// Backward: 64 rows of two tensors; two tiles of two others; their lse and delta; the columns'
/// tokens.
SAPE2_HOST_DEVICE constexpr int backward_tiles_bytes(int element_bytes, int head_size,
                                                     BiasForm form, bool keys_along_rows) {
  constexpr int kColumns = kBackwardColumns;
  return 2 * tile_bytes(element_bytes, kRowTile, head_size) +
         4 * tile_bytes(element_bytes, kColumns, head_size) + 6 * kColumns * 4 +
         column_token_bytes(form == BiasForm::direct && !keys_along_rows, kColumns);
}

/// All of it.
int forward_smem_bytes(const SmemSizes& sizes);
int backward_smem_bytes(const SmemSizes& sizes, bool keys_along_rows);

}  // namespace sape2::kernels::cuda::sm80
