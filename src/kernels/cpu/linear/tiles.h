#pragma once

#include "cpu/linear/blocks.h"
#include "cpu/linear/pass.h"

#include <algorithm>
#include <cstring>

// Products of bfloat16 in tiles, as AMX has them: registers of 16 rows × 64 bytes. The kernel asks
// for them through a class `Tiles`, so that it can be run, and tested, on CPUs without them:
//
//     configure(config)              LDTILECFG
//     zero<t>()                      TILEZERO
//     load<t>(memory, stride)        TILELOADD; the stride is in bytes
//     store<t>(memory, stride)       TILESTORED
//     multiply<sum, left, right>()   TDPBF16PS: sum += left · right
//     release()                      TILERELEASE
//
// PackedWeights' panels of bfloat16 are what TDPBF16PS takes on the right: a row of the tile has a
// pair of weights for each of 16 outputs.
namespace sape2::kernels {

inline constexpr int kTileRows = 16;
inline constexpr int kTileRowBytes = 64;
inline constexpr std::int64_t kTileInputs = kTileRowBytes / 2;  // bfloat16 in a row

/// What LDTILECFG reads: the shapes of eight tiles.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// Two tiles of rows times two panels of weights: four tiles of sums, each loaded tile used twice.
template <typename Tiles>
struct TileProduct : LinearProduct<ConstRows16> {
  static constexpr int kMostRowTiles = 2;
  static constexpr int kMostPanels = 2;
  // Tiles 0 … 3 are sums.
  static constexpr int kInputs = 4;   // 4, 5
  static constexpr int kWeights = 6;  // 6, 7

  Tiles& tiles;
  std::int64_t rows;

  int tile_rows() const { return static_cast<int>(std::min<std::int64_t>(rows, kTileRows)); }

  TileConfig config() const {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = kTileRowBytes;
      config.rows[t] = static_cast<std::uint8_t>(t < kWeights ? tile_rows() : kTileRows);
    }
    return config;
  }

  /// The first row of a tile. All tiles have as many rows, so that shapes are set once: the last
  /// one begins earlier instead, and what it computes again is thrown away.
  std::int64_t first_row(std::int64_t row_tile) const {
    return std::min<std::int64_t>(row_tile * kTileRows, rows - tile_rows());
  }

  template <int kRowTiles, int kPanels>
  void block(std::int64_t row_tile, std::int64_t first_panel, std::int64_t) const {
    const std::uint16_t* inputs[kRowTiles];
    const char* weight_panels[kPanels];
    for (int r = 0; r < kRowTiles; ++r) inputs[r] = x.data + first_row(row_tile + r) * x.stride;
    for (int p = 0; p < kPanels; ++p) weight_panels[p] = panel(first_panel + p);
    tiles.template zero<0>();
    if constexpr (kPanels > 1) tiles.template zero<1>();
    if constexpr (kRowTiles > 1) tiles.template zero<2>();
    if constexpr (kRowTiles > 1 && kPanels > 1) tiles.template zero<3>();
    const std::int64_t whole = weights.inputs() / kTileInputs * kTileInputs;
    for (std::int64_t i = 0; i < whole; i += kTileInputs) {
      const std::uint16_t* left[kRowTiles];
      const char* right[kPanels];
      for (int r = 0; r < kRowTiles; ++r) left[r] = inputs[r] + i;
      for (int p = 0; p < kPanels; ++p) right[p] = weight_panels[p] + i / 2 * kTileRowBytes;
      step(left, x.stride, right);
    }
    if (whole < weights.inputs()) last_step(inputs, weight_panels, whole);
    finish<kRowTiles, kPanels>(row_tile, first_panel);
  }

 private:
  /// Adds the products of a tile's width of inputs.
  template <int kRowTiles, int kPanels>
  void step(const std::uint16_t* const (&left)[kRowTiles], std::int64_t stride,
            const char* const (&right)[kPanels]) const {
    const std::int64_t bytes = stride * 2;
    tiles.template load<kInputs>(left[0], bytes);
    tiles.template load<kWeights>(right[0], kTileRowBytes);
    tiles.template multiply<0, kInputs, kWeights>();
    if constexpr (kPanels > 1) {
      tiles.template load<kWeights + 1>(right[1], kTileRowBytes);
      tiles.template multiply<1, kInputs, kWeights + 1>();
    }
    if constexpr (kRowTiles > 1) {
      tiles.template load<kInputs + 1>(left[1], bytes);
      tiles.template multiply<2, kInputs + 1, kWeights>();
      if constexpr (kPanels > 1) tiles.template multiply<3, kInputs + 1, kWeights + 1>();
    }
  }

  /// The same for inputs that do not fill a tile: zeros do. Another shape would empty the sums.
  template <int kRowTiles, int kPanels>
  void last_step(const std::uint16_t* const (&inputs)[kRowTiles],
                 const char* const (&weight_panels)[kPanels], std::int64_t first) const {
    alignas(64) std::uint16_t filled_inputs[kRowTiles][kTileRows][kTileInputs] = {};
    alignas(64) char filled_panels[kPanels][kTileRows * kTileRowBytes] = {};
    const std::uint16_t* left[kRowTiles];
    const char* right[kPanels];
    const auto pairs = static_cast<std::size_t>((weights.inputs() - first + 1) / 2);
    for (int r = 0; r < kRowTiles; ++r) {
      for (int row = 0; row < tile_rows(); ++row) {
        std::memcpy(filled_inputs[r][row], inputs[r] + row * x.stride + first, pairs * 4);
      }
      left[r] = &filled_inputs[r][0][0];
    }
    for (int p = 0; p < kPanels; ++p) {
      std::memcpy(filled_panels[p], weight_panels[p] + first / 2 * kTileRowBytes,
                  pairs * kTileRowBytes);
      right[p] = filled_panels[p];
    }
    step(left, kTileInputs, right);
  }

  template <int kRowTiles, int kPanels>
  void finish(std::int64_t row_tile, std::int64_t first_panel) const {
    constexpr int kColumns = kPanels * static_cast<int>(kPanel);
    constexpr int kBytes = kColumns * 4;
    alignas(64) float sums[kRowTiles][kTileRows][kColumns];
    tiles.template store<0>(sums[0], kBytes);
    if constexpr (kPanels > 1) tiles.template store<1>(&sums[0][0][kPanel], kBytes);
    if constexpr (kRowTiles > 1) tiles.template store<2>(sums[1], kBytes);
    if constexpr (kRowTiles > 1 && kPanels > 1) {
      tiles.template store<3>(&sums[1][0][kPanel], kBytes);
    }
    for (int r = 0; r < kRowTiles; ++r) {
      const std::int64_t row = (row_tile + r) * kTileRows;
      const auto again = static_cast<int>(row - first_row(row_tile + r));
      finish_block(sums[r][again], tile_rows() - again, kColumns, weights.outputs(), row,
                   first_panel * kPanel, y, epilogue);
    }
  }
};

/// linear() of rows of bfloat16, at least one, in tiles.
template <typename Tiles>
void linear_tile_rows(Tiles& tiles, const PackedWeights& weights, std::int64_t rows, ConstRows16 x,
                      Rows y, const LinearEpilogue& epilogue) {
  using Product = TileProduct<Tiles>;
  const Product product{{weights, x, y, epilogue}, tiles, rows};
  tiles.configure(product.config());
  for_each_block<Product::kMostRowTiles, Product::kMostPanels>((rows + kTileRows - 1) / kTileRows,
                                                               product.panels, product);
  tiles.release();
}

}  // namespace sape2::kernels
