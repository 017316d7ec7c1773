#pragma once

#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Shared memory of a block in the backward pass of the distance form
/// (attention_sm90/distance/backward.cuh): what lies where, and how tiles go round in it.
namespace sape2::kernels::cuda::sm90 {

inline constexpr int kPairThreads = 3 * kThreads;
inline constexpr int kPairRegisters = 65536 / kPairThreads / 8 * 8;  // of a thread, to begin with
inline constexpr int kPairColumns = kTileColumns, kPairN8 = kPairColumns / 8;

/// What goes from the warpgroups that make weights to the one that sums: 64 rows of the block by 64
/// columns of the tile each.
enum class PairItem { query_gradients, key_weights, key_gradients, omega_x, omega_y };

/// Places in shared memory, in bytes from its beginning. A tile comes in two halves, each with a
/// ring of its own: what distances and the first scores need, and the rest. Short vectors have
/// short rows; the memory that they spare is another stage, and a slot for every item. Else ω comes
/// behind the rest: along x it takes the place of its tile's values, which only its score warpgroup
/// needs, along y that of the queries' gradients.
template <int Steps>
struct DistanceBwdSmem {
  static constexpr int kFirstStages = Steps > 2 ? 3 : 4, kRestStages = 3;
  static constexpr bool kHasAllSlots = Steps <= 2;
  static constexpr int kSlots = kHasAllSlots ? 5 : 3;
  enum Part { x, y, k, q, v, dout };
  static constexpr int kVectorRow = Steps > 2 ? 128 : 64;
  static constexpr int kVectorBytes = kPairColumns * kVectorRow;
  static constexpr int kFirstBytes = 2 * kVectorBytes + kTileBytes;
  static constexpr int kRestBytes = 3 * kTileBytes;
  // Of a tile's columns lse (base 2) and delta; then both squared lengths of the columns
  // two tiles on, so that its score warpgroup has them before that tile begins. The block's rows
  // have the same behind all tiles, and behind those the lengths of the first two tiles.
  static constexpr int kLseDeltaBytes = 2 * kPairColumns * 4, kNumberBytes = 2 * kLseDeltaBytes;
  static constexpr int kRows = 0;
  static constexpr int kFirst = kRows + kFirstBytes + kRestBytes;
  static constexpr int kRest = kFirst + kFirstStages * kFirstBytes;
  static constexpr int kItems = kRest + kRestStages * kRestBytes;
  // Sixteen vectors of ones: a product with them sums a matrix's rows.
  static constexpr int kOnes = kItems + kSlots * kTileBytes, kOnesBytes = 16 * kVectorRow;
  static constexpr int kNumbers = kOnes + kOnesBytes;
  static constexpr int kScratch = kNumbers + (kRestStages + 2) * kNumberBytes;
  static constexpr int kPlace = kScratch + 64;                     // of the block's rows
  static constexpr int kFirstFull = kPlace + 8;                    // of each first stage
  static constexpr int kRestFull = kFirstFull + kFirstStages * 8;  // of each other stage
  static constexpr int kRowsFull = kRestFull + kRestStages * 8;    // of the block's rows, likewise
  static constexpr int kItemsFull = kRowsFull + 2 * 8;    // all items or the first three; ω
  static constexpr int kItemsEmpty = kItemsFull + 2 * 8;  // by a tile's parity; queries' gradients
  static constexpr int kRowsEmpty = kItemsEmpty + 3 * 8;  // of the block's rows, likewise
  static constexpr int kPlaceEmpty = kRowsEmpty + 2 * 8;
  static constexpr int kBytes = kPlaceEmpty + 8;

  /// Where a part of the block's rows begins.
  __host__ __device__ static constexpr int own(int part) {
    return kRows + (part <= k ? part * kVectorBytes : kFirstBytes + (part - q) * kTileBytes);
  }
  /// Where a tile's part begins, in the first stage of its ring.
  __host__ __device__ static constexpr int other(int part) {
    return part <= k ? kFirst + part * kVectorBytes : kRest + (part - q) * kTileBytes;
  }
  /// Where an item lies; ω along x without a slot of its own, in the first stage.
  __host__ __device__ static constexpr int place(PairItem item) {
    if (!kHasAllSlots && item == PairItem::omega_x) return other(v);
    if (!kHasAllSlots && item == PairItem::omega_y) item = PairItem::query_gradients;
    return kItems + static_cast<int>(item) * kTileBytes;
  }
};

/// A place in a ring of stages that are used in turns, counted on: dividing a tile's number takes
/// longer than a product.
template <unsigned Stages>
struct PipelineState {
  static constexpr bool kIsPower = (Stages & (Stages - 1)) == 0;
  unsigned position;  // less the whole rounds, in pairs, that were made before

  __device__ unsigned stage() const {
    if constexpr (kIsPower) return position % Stages;
    return position < Stages ? position : position - Stages;
  }
  /// Even or odd, as is how often others had the stage before.
  __device__ unsigned phase() const { return kIsPower ? position / Stages : position >= Stages; }
  __device__ void advance(unsigned by) {
    position += by;
    if (!kIsPower && position >= 2 * Stages) position -= 2 * Stages;
  }
};

/// A tile's number in its head, how many the block had before, and where it lies in the two rings.
template <int Steps>
struct PairTile {
  using Smem = DistanceBwdSmem<Steps>;
  unsigned number, count;
  PipelineState<Smem::kFirstStages> first;
  PipelineState<Smem::kRestStages> rest;

  /// One of those that are brought in to begin with.
  __device__ explicit PairTile(unsigned tile)
      : number(tile), count(tile), first{tile}, rest{tile} {}
  __device__ void advance(unsigned by) {
    number += by;
    count += by;
    first.advance(by);
    rest.advance(by);
  }
  /// Whether it is its score warpgroup's first of a head.
  __device__ bool is_first() const { return number < 2; }
  /// Bytes from the first stage to its own.
  __device__ unsigned offset(int part) const {
    return part <= Smem::k ? first.stage() * Smem::kFirstBytes : rest.stage() * Smem::kRestBytes;
  }
};

}  // namespace sape2::kernels::cuda::sm90
