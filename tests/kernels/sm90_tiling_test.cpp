// How the sm_90 attention kernels cut tokens into tiles; needs no GPU.
#include "kernels/cuda/attention_sm90/tiling.h"

#include <gtest/gtest.h>

#include <vector>

namespace sape2::kernels::cuda {
namespace {

constexpr int kGrids[][3] = {{1, 1, 0},   {64, 64, 0},  {32, 32, 1}, {33, 9, 5},
                             {5, 64, 1},  {17, 40, 70}, {3, 128, 0}, {20, 17, 64},
                             {37, 37, 0}, {70, 24, 49}, {9, 100, 5}, {21, 50, 3}};

Geometry geometry(const int (&grid)[3]) {
  Geometry g{};
  g.rows = grid[0];
  g.cols = grid[1];
  g.prefix = grid[2];
  g.tokens = g.prefix + g.rows * g.cols;
  return g;
}

TEST(Sm90KeyTiling, EveryTokenStandsInOneSlot) {
  for (const auto& grid : kGrids)
    for (const auto form : {BiasForm::none, BiasForm::direct})
      for (const int width : {32, 64}) {
        const auto g = geometry(grid);
        const auto columns = sm90::key_tiling(g, form, width);
        std::vector<int> seen(g.tokens);
        for (int tile = 0; tile < columns.tiles; ++tile) {
          const auto at = columns.place(tile);
          int used = 0;
          for (int slot = 0; slot < width; ++slot) {
            const int token = columns.token(at, slot);
            ASSERT_LT(token, g.tokens);
            if (token < 0) continue;
            ++used;
            ++seen[token];
          }
          EXPECT_EQ(columns.full(at), used == columns.width) << "tile " << tile;
        }
        EXPECT_EQ(seen, std::vector<int>(g.tokens, 1))
            << g.rows << "×" << g.cols << "+" << g.prefix;
      }
}

/// Kernels walk from tile to tile instead of dividing.
TEST(Sm90KeyTiling, WalkingMeetsEveryTile) {
  for (const auto& grid : kGrids)
    for (const auto form : {BiasForm::none, BiasForm::direct})
      for (const int width : {32, 64}) {
        const auto columns = sm90::key_tiling(geometry(grid), form, width);
        sm90::KeyTiling::Place walked{0, 0, true};
        bool whole = true;
        for (int tile = 0; tile < columns.tiles; ++tile, columns.advance(walked)) {
          const auto at = columns.place(tile);
          EXPECT_EQ(walked.part, at.part);
          EXPECT_EQ(walked.first_row, at.first_row);
          EXPECT_EQ(walked.in_grid, at.in_grid);
          whole = whole && columns.full(at);
        }
        EXPECT_EQ(columns.whole, whole);
      }
}

/// Masks of a tile's columns are found once and serve the tiles below.
TEST(Sm90KeyTiling, TilesHaveTheSlotsOfTheOneAbove) {
  for (const auto& grid : kGrids)
    for (const auto form : {BiasForm::none, BiasForm::direct})
      for (const int width : {32, 64}) {
        const auto columns = sm90::key_tiling(geometry(grid), form, width);
        for (int tile = 1; tile < columns.grid_tiles; ++tile) {
          const auto at = columns.place(tile), above = columns.place(tile - 1);
          if (at.first_row == 0 || at.first_row + columns.rows_per_tile > columns.down) continue;
          for (int slot = 0; slot < width; ++slot)
            EXPECT_EQ(columns.token(at, slot) < 0, columns.token(above, slot) < 0);
        }
      }
}

TEST(Sm90KeyTiling, DirectFormKeepsGridColumnsInTheirSlots) {
  for (const auto& grid : kGrids) {
    const auto g = geometry(grid);
    const auto columns = sm90::key_tiling(g, BiasForm::direct, 64);
    EXPECT_EQ(columns.part_width % 8, 0);
    for (int tile = 0; tile < columns.grid_tiles; ++tile) {
      const auto at = columns.place(tile);
      for (int slot = 0; slot < 64; ++slot) {
        const int token = columns.token(at, slot);
        if (token < 0) continue;
        const int patch = token - g.prefix;
        EXPECT_EQ(patch % g.cols, at.part * columns.part_width + slot % columns.part_width);
        EXPECT_EQ(patch / g.cols, at.first_row + slot / columns.part_width);
      }
    }
  }
}

/// Keys along rows: each in one square, which has eight rows of eight from an eighth row and column
/// on.
TEST(Sm90SquareTiling, EveryTokenStandsInOneSquare) {
  constexpr int kSide = sm90::SquareTiling::kSide;
  for (const auto& grid : kGrids) {
    const auto g = geometry(grid);
    const auto squares = sm90::square_tiling(g);
    std::vector<int> seen(g.tokens);
    for (int tile = 0; tile < squares.tiles; ++tile) {
      const auto at = squares.place(tile);
      EXPECT_EQ(at.row % kSide, 0);
      EXPECT_EQ(at.column % kSide, 0);
      for (int key = 0; key < kSide * kSide; ++key) {
        const int row = at.row + key / kSide, column = at.column + key % kSide;
        if (at.in_grid) {
          if (row < g.rows && column < g.cols) ++seen[g.prefix + row * g.cols + column];
        } else if (at.column + key < g.prefix) {
          ++seen[at.column + key];
        }
      }
    }
    EXPECT_EQ(seen, std::vector<int>(g.tokens, 1)) << g.rows << "×" << g.cols << "+" << g.prefix;
  }
}

}  // namespace
}  // namespace sape2::kernels::cuda
