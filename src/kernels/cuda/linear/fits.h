#pragma once

#include <cstdint>

/// Which sizes the linear layers' kernels serve, and how: known, and tested, without a GPU.
namespace sape2::kernels::cuda::linear {

inline constexpr int kChunk = 64;                          // of k at a time
inline constexpr int kRows = 64;                           // of one product
inline constexpr int kPanel = 64;                          // columns of a panel: 128 bytes
inline constexpr int kWarpRows = 16;                       // of a product's 64
inline constexpr int kSlotBytes = kWarpRows * kPanel * 2;  // in which results leave a warp
inline constexpr int kStages = 4;                          // chunks of rows on their way
inline constexpr int kMostChunks = 16;
inline constexpr int kStageBytes = kRows * kChunk * 2;
inline constexpr int kAlignment = 1024;           // of shared memory that TMA swizzles
inline constexpr int kTileRows = 128;             // of a weight's gradient
inline constexpr int kMostWeightGradients = 40;   // in one launch
inline constexpr int kSharedMemory = 227 * 1024;  // of a block at most

/// A kernel that keeps `columns` columns of the second operand in shared memory.
struct ResidentVariant {
  int columns = 192;
  int consumers = 2;  // warpgroups that take turns
};
constexpr bool operator==(const ResidentVariant& a, const ResidentVariant& b) {
  return a.columns == b.columns && a.consumers == b.consumers;
}

constexpr int slots_of(const ResidentVariant& v) {
  return v.consumers == 2 ? 3 : 2;
}
constexpr int barriers_of(const ResidentVariant& v) {
  return kMostChunks + 2 * kStages + v.consumers + 4 * v.consumers;
}
constexpr int shared_bytes_of(const ResidentVariant& v, int chunks) {
  return kAlignment + chunks * v.columns * kChunk * 2 + kStages * kStageBytes +
         4 * v.consumers * slots_of(v) * kSlotBytes + barriers_of(v) * 8;
}

constexpr int tiles_of(std::int64_t size, int tile) {
  return static_cast<int>((size + tile - 1) / tile);
}

/// Rows of whole 16 bytes are what TMA takes.
constexpr bool is_aligned(std::int64_t width) {
  return width > 0 && width % 8 == 0;
}

constexpr bool fits(const ResidentVariant& v, std::int64_t depth) {
  return depth <= kMostChunks * kChunk &&
         shared_bytes_of(v, tiles_of(depth, kChunk)) <= kSharedMemory;
}

/// The variant for products of `depth` numbers with `width` results a row; columns 0: there is
/// none.
constexpr ResidentVariant resident_variant(std::int64_t depth, std::int64_t width) {
  constexpr ResidentVariant kWide{192, 2}, kNarrow{128, 2}, kNone{0, 0};
  if (!is_aligned(depth) || !is_aligned(width)) return kNone;
  const bool even = width % kWide.columns == 0 || width % kNarrow.columns != 0;
  if (even && fits(kWide, depth)) return kWide;
  return fits(kNarrow, depth) ? kNarrow : kNone;
}

/// Tiles of 128 × `columns` of a weight's gradient.
constexpr std::int64_t gradient_tiles(std::int64_t outputs, std::int64_t inputs, int columns) {
  return std::int64_t(tiles_of(outputs, kTileRows)) * tiles_of(inputs, columns);
}

/// How long tiles of that many columns take, each multiprocessor one at a time: what a chunk costs
/// besides its columns was measured on an H200.
constexpr std::int64_t gradient_time(std::int64_t tiles, int columns, int multiprocessors) {
  return tiles_of(tiles, multiprocessors) * std::int64_t(columns + 64);
}

}  // namespace sape2::kernels::cuda::linear
