#pragma once

#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

#include <type_traits>

/// In which order a block walks over the tokens that stand along the columns of its tiles.
namespace sape2::kernels::cuda::sm80 {

/// The tokens as they come.
template <int Width>
struct PlainColumns {
  int tokens;

  __device__ explicit PlainColumns(const Geometry& g) : tokens(g.tokens) {}
  __device__ int tiles() const { return (tokens + Width - 1) / Width; }
  __device__ int token(int tile, int slot) const {
    const int token = tile * Width + slot;
    return token < tokens ? token : -1;
  }
  struct Place {};
  __device__ Place place(int) const { return {}; }
  __device__ bool full(int tile, const Place&) const { return (tile + 1) * Width <= tokens; }
};

/// Whole grid rows, or equal parts of long ones, each padded to a multiple of 8: then a column of
/// the tile always stands for the same column of the grid (within a part), and eight neighbouring
/// slots share a grid row. Prefix tokens follow behind the last part as further rows. (sm90's
/// KeyTiling cuts lines by the same rule, but on the host and with prefix tokens in tiles of their
/// own, as TMA needs them; here the width is known when compiled.)
template <int Width>
struct GridColumns {
  int rows, cols, prefix;
  int parts, part_width;
  int rows_per_tile, tiles_per_part;

  __device__ explicit GridColumns(const Geometry& g)
      : rows(g.rows), cols(g.cols), prefix(g.prefix) {
    parts = (cols + Width - 1) / Width;
    part_width = round_up((cols + parts - 1) / parts, 8);
    rows_per_tile = Width / part_width;
    tiles_per_part = (rows + rows_per_tile - 1) / rows_per_tile;
  }
  __device__ int tiles() const {
    const int prefix_rows = (prefix + part_width - 1) / part_width;
    return (parts - 1) * tiles_per_part + (rows + prefix_rows + rows_per_tile - 1) / rows_per_tile;
  }
  /// Which part of the grid's columns a tile belongs to, and the grid row it begins at.
  struct Place {
    int part, first_row;
  };
  __device__ Place place(int tile) const {
    const int part = parts == 1 ? 0 : min(tile / tiles_per_part, parts - 1);
    return {part, (tile - part * tiles_per_part) * rows_per_tile};
  }
  __device__ bool ends_part(int tile, const Place& at) const {
    return at.part + 1 < parts ? tile + 1 == (at.part + 1) * tiles_per_part : tile + 1 == tiles();
  }
  __device__ int token(int tile, int slot) const {
    const int down = slot / part_width, across = slot - down * part_width;
    if (down >= rows_per_tile) return -1;
    const Place at = place(tile);
    const int y = at.first_row + down;
    if (y < rows) {
      const int x = at.part * part_width + across;
      return x < cols ? prefix + y * cols + x : -1;
    }
    const int token = (y - rows) * part_width + across;
    return at.part == parts - 1 && token < prefix ? token : -1;
  }
  __device__ bool full(int, const Place& at) const {
    return rows_per_tile * part_width == Width && parts * part_width == cols &&
           at.first_row + rows_per_tile <= rows;
  }
};

/// The tokens of a block's tiles of columns. Where finding them takes divisions they are noted in
/// shared memory two tiles ahead: look_ahead(tile + 2) belongs between the barriers of tile `tile`.
template <class Columns, int Width>
struct ColumnTokens {
  static constexpr bool kLooksAhead = std::is_same_v<Columns, GridColumns<Width>>;
  __host__ __device__ static constexpr int bytes() {
    return column_token_bytes(kLooksAhead, Width);
  }

  const Columns& columns;
  int* ahead;
  int tiles;

  __device__ ColumnTokens(const Columns& all, unsigned char* shared)
      : columns(all), ahead(reinterpret_cast<int*>(shared)), tiles(all.tiles()) {
    if constexpr (kLooksAhead) {
      look_ahead(0);
      look_ahead(1);
      __syncthreads();
    }
  }
  __device__ void look_ahead(int tile) const {
    if constexpr (kLooksAhead)
      if (tile < tiles)
        for (int slot = threadIdx.x; slot < Width; slot += kThreads)
          ahead[tile % 3 * Width + slot] = columns.token(tile, slot);
  }
  __device__ int operator()(int tile, int slot) const {
    if constexpr (kLooksAhead) {
      return ahead[tile % 3 * Width + slot];
    } else {
      return columns.token(tile, slot);
    }
  }
};

template <BiasForm Form, int Width>
struct ColumnsOf {
  using Type = PlainColumns<Width>;
};
template <int Width>
struct ColumnsOf<BiasForm::direct, Width> {
  using Type = GridColumns<Width>;
};

}  // namespace sape2::kernels::cuda::sm80
