#pragma once

#include "kernels/cuda/host/host_device.h"
#include "kernels/cuda/host/params.h"

namespace sape2::kernels::cuda::sm90 {

/// How tokens are cut into tiles of `width` slots that stand along columns. The direct form takes
/// whole grid rows, or equal parts of long ones, each padded to a multiple of 8: a column of the
/// tile then always stands for the same column of the grid (within a part), and eight neighbours
/// share a grid row. Prefix tokens fill tiles of their own at the end. The other forms take the
/// tokens as they come, one grid row of all.
struct KeyTiling {
  int width;
  int across, down;  // the grid
  int prefix;
  int parts, part_width;
  int rows_per_tile, tiles_per_part;
  int grid_tiles, tiles;
  bool whole;  // whether every slot of every tile has a token

  struct Place {
    int part, first_row;
    bool in_grid;
  };
  SAPE2_HOST_DEVICE Place place(int tile) const {
    if (tile >= grid_tiles) return {tile - grid_tiles, 0, false};
    const int part = parts == 1 ? 0 : tiles_per_part == 1 ? tile : tile / tiles_per_part;
    return {part, (tile - part * tiles_per_part) * rows_per_tile, true};
  }
  /// Goes on to the next tile; the first one's place is {0, 0, true}.
  SAPE2_HOST_DEVICE void advance(Place& at) const {
    if (!at.in_grid) {
      ++at.part;
      return;
    }
    at.first_row += rows_per_tile;
    if (at.first_row < down) return;
    at.first_row = 0;
    if (++at.part == parts) at = {0, 0, false};
  }
  /// The token in a slot of a tile; −1 where there is none, as beyond the last slot.
  SAPE2_HOST_DEVICE int token(const Place& at, int slot) const {
    if (!at.in_grid) {
      const int token = at.part * width + slot;
      return slot < width && token < prefix ? token : -1;
    }
    const int y = slot / part_width, x = at.part * part_width + slot - y * part_width;
    if (y >= rows_per_tile || at.first_row + y >= down || x >= across) return -1;
    return prefix + (at.first_row + y) * across + x;
  }
  /// Whether every slot of a tile has a token.
  SAPE2_HOST_DEVICE bool full(const Place& at) const {
    if (!at.in_grid) return (at.part + 1) * width <= prefix;
    return rows_per_tile * part_width == width && (at.part + 1) * part_width <= across &&
           at.first_row + rows_per_tile <= down;
  }
};

/// Tiles of `width` slots, or of three quarters of that where no more can be filled; `in_squares`:
/// of the direct form's keys, parts of eight columns.
inline KeyTiling key_tiling(const Geometry& g, BiasForm form, int width, bool in_squares = false) {
  KeyTiling c{};
  c.width = width;
  if (form == BiasForm::direct) {
    c.across = g.cols;
    c.down = g.rows;
    c.prefix = g.prefix;
    const int widest = in_squares ? 8 : width;
    c.parts = (g.cols + widest - 1) / widest;
    c.part_width = ((g.cols + c.parts - 1) / c.parts + 7) / 8 * 8;
    c.rows_per_tile = width / c.part_width;
    if (c.rows_per_tile * c.part_width <= width / 4 * 3) c.width = width / 4 * 3;
  } else {
    c.across = g.tokens;
    c.down = 1;
    c.parts = (g.tokens + width - 1) / width;
    c.part_width = width;
    c.rows_per_tile = 1;
  }
  c.tiles_per_part = (c.down + c.rows_per_tile - 1) / c.rows_per_tile;
  c.grid_tiles = c.parts * c.tiles_per_part;
  c.tiles = c.grid_tiles + (c.prefix + c.width - 1) / c.width;
  c.whole = c.rows_per_tile * c.part_width == c.width && c.parts * c.part_width == c.across &&
            c.down % c.rows_per_tile == 0 && c.prefix % c.width == 0;
  return c;
}

/// How keys with a direct bias are cut into tiles that stand along rows: squares of eight grid rows
/// by eight columns, the last ones reaching beyond the grid. A square's keys take eight entries of
/// a query's x and eight of its y, which is all that a product of sixteen takes at once. Prefix
/// tokens follow, 64 a tile.
struct SquareTiling {
  static constexpr int kSide = 8;
  int across;  // squares in a row of them
  int grid_tiles, tiles;

  struct Place {
    int row, column;  // of the first key; column: of prefix tokens the number
    bool in_grid;
  };
  SAPE2_HOST_DEVICE Place place(int tile) const {
    if (tile >= grid_tiles) return {0, (tile - grid_tiles) * kSide * kSide, false};
    const int down = unsigned(tile) / unsigned(across);
    return {down * kSide, (tile - down * across) * kSide, true};
  }
};

inline SquareTiling square_tiling(const Geometry& g) {
  constexpr int kSide = SquareTiling::kSide;
  SquareTiling s{};
  s.across = (g.cols + kSide - 1) / kSide;
  s.grid_tiles = (g.rows + kSide - 1) / kSide * s.across;
  s.tiles = s.grid_tiles + (g.prefix + kSide * kSide - 1) / (kSide * kSide);
  return s;
}

}  // namespace sape2::kernels::cuda::sm90
