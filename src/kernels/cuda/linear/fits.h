#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

/// Which sizes the linear layers' kernels serve, and how: known, and tested, without a GPU.
namespace sape2::kernels::cuda::linear {

inline constexpr int kChunk = 64;                          // steps along the depth in one load
inline constexpr int kRows = 64;                           // of a wgmma, and of a consumer's tile
inline constexpr int kPanel = 64;                          // columns of a panel: 128 bytes
inline constexpr int kWarpRows = 16;                       // a warp's of those 64
inline constexpr int kSlotBytes = kWarpRows * kPanel * 2;  // of what TMA stores at once
inline constexpr int kStages = 4;                          // of the ring of chunks
inline constexpr int kMostChunks = 16;                     // of the weights, one barrier each
inline constexpr int kStageBytes = kRows * kChunk * 2;
inline constexpr int kAlignment = 1024;           // of shared memory that TMA swizzles
inline constexpr int kTileRows = 128;             // of a weight gradient's tile
inline constexpr int kMostWeightGradients = 40;   // in one launch
inline constexpr int kSharedMemory = 227 * 1024;  // that a block may have on sm_90

// Resident weights: columns of the product that a block may have.
inline constexpr int kWide = 192, kNarrow = 128;
inline constexpr int kConsumers = 2;  // warpgroups that take turns
inline constexpr int kSlots = 3;      // of each of their warps (Staging)
inline constexpr int kBarriers = kMostChunks + 2 * kStages + kConsumers + 4 * kConsumers;

/// What ResidentSmem takes; `chunks`: of the depth.
constexpr int resident_smem_bytes(int columns, int chunks) {
  return kAlignment + chunks * columns * kChunk * 2 + kStages * kStageBytes +
         4 * kConsumers * kSlots * kSlotBytes + kBarriers * 8;
}

constexpr int tiles_of(std::int64_t size, int tile) {
  return static_cast<int>((size + tile - 1) / tile);
}

/// TMA takes rows of a multiple of 16 bytes.
constexpr bool is_aligned(std::int64_t width) {
  return width > 0 && width % 8 == 0;
}

/// Rows, and those of a last tile that reaches beyond them, are numbered by int.
constexpr bool can_count(std::int64_t rows) {
  return rows > 0 && rows <= std::numeric_limits<int>::max() - kTileRows;
}

constexpr bool fits(int columns, std::int64_t depth) {
  return depth <= kMostChunks * kChunk &&
         resident_smem_bytes(columns, tiles_of(depth, kChunk)) <= kSharedMemory;
}

/// Why resident weights serve no product of these rows, of this depth (values multiplied for one
/// result) and width (results in a row); empty: they do.
constexpr std::string_view why_not_resident(std::int64_t rows, std::int64_t depth,
                                            std::int64_t width) {
  if (!can_count(rows)) return "it takes 1 to 2,147,483,519 rows";
  if (!is_aligned(depth) || !is_aligned(width)) return "it takes rows of whole 16 bytes";
  if (!fits(kNarrow, depth)) return "the weights of a block do not fit into shared memory";
  return {};
}

/// Whether that takes less time than cuBLAS with GELU apart: each multiprocessor keeps its columns
/// of the weight for several rounds of rows.
constexpr bool resident_pays(std::int64_t rows) {
  return rows >= 4096;
}

/// Blocks that share the rows of one group of columns, if each multiprocessor has one block.
constexpr int resident_blocks(int columns, std::int64_t rows, std::int64_t width,
                              int multiprocessors) {
  const int most = std::max(1, multiprocessors / tiles_of(width, columns));
  return std::min(most, tiles_of(tiles_of(rows, kRows), kConsumers));
}

/// How long a product takes: rounds in which each consumer has a tile, times the columns of a tile.
constexpr std::int64_t resident_time(int columns, std::int64_t rows, std::int64_t width,
                                     int multiprocessors) {
  const int blocks = resident_blocks(columns, rows, width, multiprocessors);
  return std::int64_t(tiles_of(tiles_of(rows, kRows), blocks * kConsumers)) * columns;
}

/// The columns with which a product takes least time; if equal, the wider, which read the rows less
/// often.
constexpr int resident_columns(std::int64_t rows, std::int64_t depth, std::int64_t width,
                               int multiprocessors) {
  const auto time = [&](int columns) {
    return resident_time(columns, rows, width, multiprocessors);
  };
  return fits(kWide, depth) && time(kWide) <= time(kNarrow) ? kWide : kNarrow;
}

/// Tiles of 128 × `columns` of a weight's gradient.
constexpr std::int64_t gradient_tiles(std::int64_t outputs, std::int64_t inputs, int columns) {
  return std::int64_t(tiles_of(outputs, kTileRows)) * tiles_of(inputs, columns);
}

/// Why the kernel does not compute a weight's gradient of these sizes; empty: it does.
constexpr std::string_view why_not_gradient(std::int64_t rows, std::int64_t outputs,
                                            std::int64_t inputs) {
  if (!can_count(rows)) return "it takes 1 to 2,147,483,519 rows";
  if (!is_aligned(outputs) || !is_aligned(inputs)) return "it takes rows of whole 16 bytes";
  return {};
}

/// Whether such a gradient is worth waiting for others.
constexpr bool gradient_pays(std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
  constexpr std::int64_t kFewestRows = 1024, kShortestSide = kTileRows;
  return rows >= kFewestRows && outputs >= kShortestSide && inputs >= kShortestSide;
}

/// Whether gradients of that many tiles fill a GPU as well as any more would: rounds of tiles on
/// all multiprocessors in which a launch's uneven end no longer matters much.
constexpr bool gradients_suffice(std::int64_t tiles, std::int64_t gradients, int multiprocessors) {
  constexpr std::int64_t kRounds = 2;
  return gradients >= kMostWeightGradients || tiles >= kRounds * multiprocessors;
}

/// How long tiles of that many columns take, each multiprocessor one at a time: what a chunk costs
/// besides its columns was measured on an H200.
constexpr std::int64_t gradient_time(std::int64_t tiles, int columns, int multiprocessors) {
  return tiles_of(tiles, multiprocessors) * std::int64_t(columns + 64);
}

}  // namespace sape2::kernels::cuda::linear
