#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// The direct form, b_in = x_i[column of n] + y_i[row of n], in attention_sm90. Tiles of
/// keys are whole grid rows padded to eights (KeyTiling), so eight neighbouring keys are eight
/// neighbouring entries of x. A product with a diagonal of 8×8 takes a n8 fragment of x, two
/// numbers a register, to where the scores are gathered: one instruction for four numbers a lane.
/// The scores' product starts from x's part of the bias; y's part joins the softmax's shift.
namespace sape2::kernels::cuda::sm90 {

/// From the bias to the scores, which are multiplied by `scale` afterwards.
__device__ inline float bias_ratio(const AttentionParams& p, int head) {
  return per_head(p.gain, head, 1.0F) / (p.inside ? 1.0F : p.scale);
}
/// From the bias to the logits.
__device__ inline float bias_factor(const AttentionParams& p, int head) {
  return per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);
}

/// A pair of this lane's in an 8×8 n8 fragment of A or B: `value` where column and row are the
/// same.
template <class T>
__device__ std::uint32_t on_diagonal(float value) {
  const Lane lane;
  return pack<T>(lane.g == 2 * lane.t ? value : 0.0F, lane.g == 2 * lane.t + 1 ? value : 0.0F);
}

/// A number as the sum of two of type T; `low` is 0 where one is enough.
template <class T>
struct InTwoParts {
  float high, low;
  __device__ explicit InTwoParts(float value) : high(widen(narrow<T>(value))), low(value - high) {}
};

/// to = a · b + c over eight of k: rows g, g+8 of A at columns 2t, rows 2t of B.
template <class T>
__device__ void multiply_onto(float (&to)[4], std::uint32_t a_top, std::uint32_t a_bottom,
                              std::uint32_t b, const float (&c)[4]) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%8,%9,%10};"
        : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
        : "r"(a_top), "r"(a_bottom), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%8,%9,%10};"
        : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
        : "r"(a_top), "r"(a_bottom), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
}
/// c += a · b over eight of k.
template <class T>
__device__ void mma_k8(float (&c)[4], std::uint32_t a_top, std::uint32_t a_bottom,
                       std::uint32_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a_top), "r"(a_bottom), "r"(b));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a_top), "r"(a_bottom), "r"(b));
  }
}
/// Four n8 fragments of 8×8, one a register; lane 8i + r gives the address of row r of n8 fragment
/// i.
__device__ inline void load_n8s(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

/// n8 fragments of a tile in which a grid row, or a part of one, has `RowN8`: see key_tiling.
template <int RowN8>
inline constexpr int kTileN8 = RowN8 == 3 || RowN8 == 5 || RowN8 == 6 ? 6 : 8;

/// Walks over the n8 fragments of a tile: how far along its grid row each is. `RowN8`: n8 fragments
/// of a grid row (or its part) where that is known at compile time, else 0; known, nothing of it is
/// left at run time.
template <int RowN8>
struct N8Walk {
  int row_n8, across = 0, row = 0;

  __device__ explicit N8Walk(const KeyTiling& columns)
      : row_n8(RowN8 > 0 ? RowN8 : columns.part_width / 8) {}
  __device__ void next() {
    ++across;
    if (across == row_n8) {
      across = 0;
      ++row;
    }
  }
};

__device__ inline std::uint32_t load_shared_pair(std::uint32_t address) {
  std::uint32_t bits;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(address));
  return bits;
}
__device__ inline void store_shared_pair(std::uint32_t address, std::uint32_t bits) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
}
template <class T>
__device__ float load_shared_number(std::uint32_t address) {
  std::uint16_t bits;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(bits) : "r"(address));
  return widen(reinterpret_cast<const T&>(bits));
}

/// The y of this lane's two rows, from panels of 64 entries in shared memory.
template <class T, int RowN8>
struct RowsY {
  // Grid rows in a tile; 0: known at run time only.
  static constexpr int kRows = RowN8 > 0 ? kTileN8<RowN8> / RowN8 : 0;
  // Those that are read together: neighbours within an eight of entries.
  static constexpr int kRead = kRows == 2 || kRows == 4 ? kRows : 1;
  std::uint32_t address;

  __device__ explicit RowsY(const unsigned char* panels) {
    const Lane lane;
    // N8 of a row are exchanged by the row's number.
    address = shared_address(panels) + (threadIdx.x / 32 * 16 + lane.g) * 128 + lane.g * 16;
  }
  /// Where entry `grid_row` of the first row lies; that of the second lies 1024 bytes on.
  __device__ std::uint32_t at(unsigned grid_row) const {
    return (address ^ grid_row / 8 % 8 * 16) + grid_row / 64 * kTileBytes + grid_row % 8 * 2;
  }
  /// `factor` times y, (grid row, row): at one grid row or, where a tile is known to have two or
  /// four, at all of them.
  __device__ void read(float (&to)[kRead][2], int grid_row, float factor) const {
    const std::uint32_t from = at(grid_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kRead == 1) {
        to[0][half] = factor * load_shared_number<T>(from + half * 1024);
      } else {
#pragma unroll
        for (int row = 0; row < kRead; row += 2) {
          const float2 pair = unpack<T>(load_shared_pair(from + half * 1024 + row * 2));
          to[row][half] = factor * pair.x;
          to[row + 1][half] = factor * pair.y;
        }
      }
    }
  }
};

/// What y adds to the logits of a tile, n8 fragment after n8 fragment; nothing for prefix tokens.
template <class T, int RowN8>
struct TermsY {
  const RowsY<T, RowN8>& y;
  N8Walk<RowN8> walk;
  int first_row, last_row;
  float factor, terms[RowsY<T, RowN8>::kRead][2];

  __device__ TermsY(const RowsY<T, RowN8>& rows, const KeyTiling& columns,
                    const KeyTiling::Place& at, float f)
      : y(rows),
        walk(columns),
        first_row(at.first_row),
        last_row(columns.down - 1),
        factor(at.in_grid ? f : 0.0F) {
    y.read(terms, first_row, factor);
  }
  /// Of this lane's two rows, at the next n8 fragment.
  __device__ void next(float (&to)[2]) {
    if (RowN8 == 0 && walk.across == 0 && walk.row > 0)
      y.read(terms, min(first_row + walk.row, last_row), factor);
    // Chosen, not indexed: an index would put all of this into memory.
    constexpr int kRead = RowsY<T, RowN8>::kRead;
    const bool odd = kRead > 1 && walk.row % 2 == 1, late = kRead > 2 && walk.row >= 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float early = odd ? terms[1 % kRead][half] : terms[0][half];
      to[half] = late ? (odd ? terms[3 % kRead][half] : terms[2 % kRead][half]) : early;
    }
    walk.next();
  }
};
/// Without a bias.
struct NoTerms {
  __device__ void next(float (&to)[2]) { to[0] = to[1] = 0.0F; }
};

/// Grid rows of a tile whose `RowN8` is known.
template <int RowN8>
inline constexpr int kTileRows = kTileN8<RowN8> / (RowN8 > 0 ? RowN8 : 1);

/// Goes on to the place of the next tile; of whole grids only its first row changes.
template <int RowN8, bool Whole>
__device__ void next_tile(const KeyTiling& columns, KeyTiling::Place& at) {
  if constexpr (Whole) {
    at.first_row += kTileRows<RowN8>;
  } else {
    columns.advance(at);
  }
}

/// Queries along rows, keys along grid columns: x_i of a lane's places stays the same from tile to
/// tile, in registers or, where those are short, in shared memory, one panel a part of the grid. It
/// is what the scores start from; y_i, one number a grid row, joins them when they become weights.
/// `Exact`: the ratio is a number of type T.
template <class T, int RowN8, bool InRegisters, bool Exact = false>
struct DirectBias {
  static constexpr int kN8 = kTileN8<RowN8>, kStored = RowN8 > 0 ? RowN8 : kN8;
  const KeyTiling& columns;
  std::uint32_t high;       // the ratio's first part, on a diagonal
  float low;                // and what it lacks
  std::uint32_t x_address;  // of this lane's row, if x is in shared memory
  std::uint32_t along_x[InRegisters ? kStored : 1][2];

  __device__ DirectBias(const KeyTiling& all, float ratio, const unsigned char* panels_x)
      : columns(all) {
    const InTwoParts<T> parts(ratio);
    high = on_diagonal<T>(parts.high);
    low = parts.low;
    // N8 of a row are exchanged by the row's number; n8 fragment 0, or 1 for the other lanes.
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    x_address = shared_address(panels_x) + row * 128 + (lane / 16 ^ row % 8) * 16;
  }

  /// A product needs numbers even where it multiplies by 0, so nothing beyond the grid is read.
  __device__ void begin_part(const AttentionParams& p, const BlockCoord& block, int row, int part) {
    static_assert(InRegisters);
    const T* const from = static_cast<const T*>(p.vectors.x) +
                          (block.batch_head * p.geometry.padded_tokens + row) * p.vectors.width_x;
    N8Walk<RowN8> walk(columns);
#pragma unroll
    for (int n8 = 0; n8 < kStored; ++n8, walk.next()) {
      const int column = part * columns.part_width + walk.across * 8 + 2 * (threadIdx.x % 4);
      const int inside = columns.across - column;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t pair = 0;
        if (inside > 0)
          pair =
              *reinterpret_cast<const std::uint32_t*>(from + 8 * half * p.vectors.width_x + column);
        along_x[n8][half] = inside == 1 ? pair & 0xffffu : pair;
      }
    }
  }
  /// x at two neighbouring n8 fragments of a tile.
  __device__ void n8s_x(std::uint32_t (&to)[2][2], int part, int n8, int across,
                        int next_across) const {
    if constexpr (InRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i / 2][i % 2] = along_x[(n8 + i / 2) % kStored][i % 2];
    } else {
      std::uint32_t address = x_address + part * kTileBytes;
      if constexpr (RowN8 > 0 && RowN8 % 2 == 0) {
        address ^= across * 16;  // an even n8 fragment and the one behind it
      } else {
        address ^= threadIdx.x % 32 < 16 ? across * 16 : (next_across ^ 1) * 16;
      }
      std::uint32_t both[4];
      load_n8s(both, address);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i / 2][i % 2] = both[i];
    }
  }

  /// The x part of one tile's bias as scores; 0 for prefix tokens.
  __device__ void start(float (&c)[kN8][4], const KeyTiling::Place& at) const {
    constexpr float kNothing[4] = {};
    const std::uint32_t by = at.in_grid ? high : 0;
    const int part = at.in_grid ? at.part : 0;
    for_each_n8(part, [&](int n8, const std::uint32_t(&x)[2]) {
      multiply_onto<T>(c[n8], x[0], x[1], by, kNothing);
    });
    if constexpr (Exact) return;
    if (low == 0.0F || !at.in_grid) return;
    const std::uint32_t rest = on_diagonal<T>(low);
    for_each_n8(part,
                [&](int n8, const std::uint32_t(&x)[2]) { mma_k8<T>(c[n8], x[0], x[1], rest); });
  }

 private:
  /// Calls use(n8 fragment, x there) for the n8 fragments of a tile.
  template <class Use>
  __device__ void for_each_n8(int part, Use use) const {
    N8Walk<RowN8> walk(columns);
#pragma unroll
    for (int n8 = 0; n8 < kN8; n8 += 2) {
      auto behind = walk;
      behind.next();
      std::uint32_t x[2][2];
      n8s_x(x, part, n8, walk.across, behind.across);
#pragma unroll
      for (int i = 0; i < 2; ++i, walk.next()) use(n8 + i, x[i]);
    }
  }
};

}  // namespace sape2::kernels::cuda::sm90
