#pragma once

#include "kernels/cuda/stream_columns.h"

namespace sape2::kernels::cuda {

/// How keys with a direct bias are cut into tiles that stand along rows: eight eights each, every
/// one of them in a grid row, or a part of a long one; the last of a row may lack keys. Row follows
/// row without a gap, so that no tile but a part's last has room left. Eight rows fill whole tiles,
/// however long they are, so a tile's rows are among eight that begin at a multiple of 8. Prefix
/// tokens follow.
struct StreamEights {
  static constexpr int kInTile = 8;
  int across, down;  // the grid
  int prefix;
  int parts, part_width;
  int in_row;                       // eights of a part's row
  std::uint32_t in_row_reciprocal;  // times 2³¹, rounded up: blocks divide by it again and again
  int tiles_per_part, grid_tiles, tiles;

  struct Place {
    int part, row, column;  // of the eight's first key; column: in the part
    bool in_grid;
  };
  /// Where an eight of a tile stands; below the grid or behind the prefix where there is none.
  __host__ __device__ Place place(int tile, int eight) const {
    if (tile >= grid_tiles) return {0, 0, ((tile - grid_tiles) * kInTile + eight) * 8, false};
    const int part = parts == 1 ? 0 : tile / tiles_per_part;
    const int index = (tile - part * tiles_per_part) * kInTile + eight;
    const int row = static_cast<int>(std::uint64_t(index) * in_row_reciprocal >> 31);
    return {part, row, (index - row * in_row) * 8, true};
  }
  /// The grid column, or prefix token, of an eight's first key. What of its eight lies beyond the
  /// grid or the prefix is no key.
  __host__ __device__ int first_column(const Place& at) const {
    return at.part * part_width + at.column;
  }
  /// Where an eight's tokens begin, or would if it had any.
  __host__ __device__ int first_token(const Place& at) const {
    return at.in_grid ? prefix + at.row * across + first_column(at) : at.column;
  }
};

inline StreamEights stream_eights(const Geometry& g, const StreamColumns& columns) {
  StreamEights e{};
  e.across = g.cols;
  e.down = g.rows;
  e.prefix = g.prefix;
  e.parts = columns.parts;
  e.part_width = columns.part_width;
  e.in_row = columns.part_width / 8;
  e.in_row_reciprocal = ((1U << 31) + e.in_row - 1) / e.in_row;
  constexpr int kInTile = StreamEights::kInTile;
  e.tiles_per_part = (e.down * e.in_row + kInTile - 1) / kInTile;
  e.grid_tiles = e.parts * e.tiles_per_part;
  e.tiles = e.grid_tiles + (e.prefix + 8 * kInTile - 1) / (8 * kInTile);
  return e;
}

}  // namespace sape2::kernels::cuda
