#pragma once

#include "kernels/cuda/stream_columns.h"

namespace sape2::kernels::cuda {

/// How keys with a direct bias are cut into tiles that stand along rows: squares of eight grid rows
/// by eight columns, the last ones reaching beyond the grid. A square's keys take eight entries of
/// a query's x and eight of its y, which is all that a product of sixteen takes at once. Prefix
/// tokens follow, 64 a tile.
struct StreamSquares {
  static constexpr int kSide = 8;
  int across;  // squares in a row of them
  int grid_tiles, tiles;

  struct Place {
    int row, column;  // of the first key; column: of prefix tokens the number
    bool in_grid;
  };
  __host__ __device__ Place place(int tile) const {
    if (tile >= grid_tiles) return {0, (tile - grid_tiles) * kSide * kSide, false};
    const int down = unsigned(tile) / unsigned(across);
    return {down * kSide, (tile - down * across) * kSide, true};
  }
};

inline StreamSquares stream_squares(const Geometry& g) {
  constexpr int kSide = StreamSquares::kSide;
  StreamSquares s{};
  s.across = (g.cols + kSide - 1) / kSide;
  s.grid_tiles = (g.rows + kSide - 1) / kSide * s.across;
  s.tiles = s.grid_tiles + (g.prefix + kSide * kSide - 1) / (kSide * kSide);
  return s;
}

}  // namespace sape2::kernels::cuda
