#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Stage 1 where sizes are known to the compiler: what a block holds, scores and table values. As
/// in axis_vectors/line.cuh a warp works on 16 patches of one line, and numbers along the line are
/// line[n8][e].
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// Lines of up to `Long` patches, a multiple of 16, padded to that.
template <int Long, Span Along>
struct LineShape {
  static constexpr bool kSuffix = Along == Span::suffix;
  static constexpr int kLong = Long;
  static constexpr int kN8 = Long / 8;
  static constexpr int kTiles = Long / 16;                   // warps a line
  static constexpr int kLines = Long <= 32 ? 64 / Long : 1;  // that a block works on at once
  static constexpr int kRows = kLines * Long;
  static constexpr int kWarps = kRows / 16, kThreads = 32 * kWarps;
  static constexpr int kTileBytes = kRows * kRowBytes<kHeadSize>;

  // The table in shared memory has room for positions of padded lines and rows of zeros around
  // them; of it 16 neighbours reach a window.
  static constexpr int kWindow = Long + 16;
  static constexpr int kTableRows = kSuffix ? kWindow : 2 * Long;
  static constexpr int kTableBytes = kTableRows * kRowBytes<kHeadSize>;
  static constexpr int kValuePitch = kWindow + 4;

  /// The row of the reachable table's first one.
  __device__ static int table_begin(int length) { return kSuffix ? 1 : Long - length; }
  /// For 16 patches from place `first` on: their window's first row, and position 0 in the window.
  __device__ static int window(int first) { return kSuffix ? 0 : Long - 16 - first; }
  __device__ static int origin(int first) { return kSuffix ? 1 : first + 15; }
};

/// Divides numbers below 2^31 by one that the host knows: by a product, and a shift.
struct Divisor {
  unsigned value, factor, shift;

  explicit Divisor(unsigned divisor) : value(divisor), shift(31) {
    while ((1U << (shift - 31)) < divisor) ++shift;
    factor = static_cast<unsigned>(((std::uint64_t(1) << shift) + divisor - 1) / divisor);
  }
  __device__ unsigned quotient(unsigned number) const {
    return static_cast<unsigned>((std::uint64_t(number) * factor) >> shift);
  }
};

/// How lines are divided: an axis of a head gets so many blocks, each of them so many lines.
struct Grid {
  Divisor blocks, heads;
  int lines;

  Grid(const Params& p, int own_blocks, int own_lines)
      : blocks(own_blocks), heads(p.geometry.heads), lines(own_lines) {}
};

/// Which lines of which head a block has.
struct Block {
  const AxisLines& axis;
  int image, head;
  std::int64_t batch_head;
  int first_line, last_line;

  __device__ Block(const Params& p, int axis_index, const Grid& grid) : axis(p.axes[axis_index]) {
    const unsigned index = grid.blocks.quotient(blockIdx.x);
    batch_head = index;
    first_line = (blockIdx.x - index * grid.blocks.value) * grid.lines;
    last_line = min(first_line + grid.lines, axis.lines);
    image = grid.heads.quotient(index);
    head = static_cast<int>(index) - image * grid.heads.value;
  }
  /// Has all of it worked out here, before whatever is waited for next: what a launch is told comes
  /// from far away at first.
  __device__ void be_known() const {
    asm volatile("" ::"r"(image), "r"(head), "l"(batch_head), "r"(first_line), "r"(last_line),
                 "r"(axis.length), "r"(axis.lines));
  }
};

/// A warp's place in its block.
template <class Lines>
struct Warp {
  int index, line, first_row, own;  // own: the first patch's place on the line

  __device__ Warp() : index(threadIdx.x / 32) {
    line = index / Lines::kTiles;
    first_row = index * 16;
    own = first_row - line * Lines::kLong;
  }
};

/// One axis of one head of a tensor; a head's elements are counted with 32 bits.
template <class T>
struct AxisTensor {
  T* data;            // of the first patch
  int across, along;  // elements from line to line, from place to place

  template <class AnyView>
  __device__ AxisTensor(const AnyView& view, const Params& p, const Block& block) {
    const int stride = static_cast<int>(view.token_stride);
    data = static_cast<T*>(view.data) + block.image * view.image_stride +
           block.head * view.head_stride + p.geometry.prefix * stride;
    across = stride * block.axis.line_stride;
    along = stride * block.axis.position_stride;
  }
};

/// Starts loading a block's lines from `line` on; what belongs to no patch becomes zeros.
template <class Lines, class T>
__device__ void load_lines(unsigned char* tile, const AxisTensor<const T>& from,
                           const AxisLines& axis, int line) {
  constexpr int kStep = Lines::kThreads / 8, kSweeps = Lines::kRows / kStep;
  const int n8 = threadIdx.x % 8, first = threadIdx.x / 8;
  const T* const begin = from.data + (line * from.across + first * from.along + n8 * 8);
#pragma unroll
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const int in_block = sweep * kStep / Lines::kLong, ahead = sweep * kStep % Lines::kLong;
    const bool valid = first + ahead < axis.length && line + in_block < axis.lines;
    cp_async_16(tile + LdmatrixOffsets<kHeadSize>::offset(first + sweep * kStep, n8),
                begin + (in_block * from.across + ahead * from.along), valid);
  }
}

/// The reachable rows of a head's table between zeros: read first, kept in shared memory, rounded,
/// when there is time to wait for them.
template <class T, class Lines>
struct Table {
  static constexpr int kN8 = kHeadSize / 8, kStep = Lines::kThreads / kN8;
  static constexpr int kSweeps = (Lines::kTableRows + kStep - 1) / kStep;
  int row, n8;  // of the thread's first eight numbers; the next ones are kStep rows further
  float4 quads[kSweeps][2];

  __device__ Table(const Params& p, const Block& block, int axis_index)
      : row(threadIdx.x / kN8), n8(threadIdx.x % kN8) {
    const AxisLines& axis = block.axis;
    const int from_first = row - Lines::table_begin(axis.length);
    const auto* const from =
        reinterpret_cast<const float4*>(p.tables[0][axis_index] + block.head * p.table_head_stride +
                                        (axis.table_first + from_first) * kHeadSize + n8 * 8);
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const bool used = unsigned(from_first + sweep * kStep) < unsigned(axis.positions);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        quads[sweep][half] =
            used ? from[sweep * kStep * kHeadSize / 4 + half] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
  }
  __device__ void keep(unsigned char* tile) const {
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const int own_row = row + sweep * kStep;
      if (Lines::kTableRows % kStep != 0 && own_row >= Lines::kTableRows) break;
      const auto& [left, right] = quads[sweep];
      *reinterpret_cast<uint4*>(tile + LdmatrixOffsets<kHeadSize>::offset(own_row, n8)) =
          make_uint4(pack<T>(left.x, left.y), pack<T>(left.z, left.w), pack<T>(right.x, right.y),
                     pack<T>(right.z, right.w));
    }
  }
};

/// q·k of a warp's patches with those of their line. `queries`: LdmatrixOffsets::a of the warp's
/// rows; `keys`: LdmatrixOffsets::b_rows of the line's.
template <class T, int N8>
__device__ void make_scores(float (&score)[N8][4], std::uint32_t queries, std::uint32_t keys) {
  const RowsAsA<T, kHeadSize> q(queries);
#pragma unroll
  for (int n8 = 0; n8 < N8; n8 += 2) {
    float c[2][4];
    multiply(c, q, keys + n8 * 8 * kRowBytes<kHeadSize>);
#pragma unroll
    for (int e = 0; e < 8; ++e) score[n8 + e / 4][e % 4] = c[e / 4][e % 4];
  }
}

/// a·table of a warp's patches over their window. `source`: LdmatrixOffsets::a of the warp's rows;
/// `table`: LdmatrixOffsets::b_rows of the window's.
template <class T, int Window, int Pitch>
__device__ void make_values(float* values, std::uint32_t source, std::uint32_t table) {
  const Lane lane;
  const RowsAsA<T, kHeadSize> a(source);
  float* const to = values + lane.g * Pitch + 2 * lane.t;
#pragma unroll
  for (int column = 0; column < Window; column += 16) {
    float c[2][4];
    multiply(c, a, table + column * kRowBytes<kHeadSize>);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<float2*>(to + i % 2 * 8 * Pitch + column + i / 2 * 8) =
          make_float2(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
  }
}

/// Between which of a patch's table values a position lies. One that is no number gets some place
/// near them and a weight that is none.
struct TablePlace {
  static constexpr int kColumns = 128;  // more than any window has
  float below, slope, weight;

  /// `shift`: kFloorShift + the column of position 0.
  __device__ TablePlace(float position, float shift, const float* values) {
    const float shifted = __fadd_rd(position, shift);
    weight = position - (shifted - shift);
    const float* const at = values + (__float_as_int(shifted) & (kColumns - 1));
    below = at[0];
    slope = at[1] - below;
  }
};

/// Calls use(LineShape()) for an axis.
template <class Use>
void dispatch_lines(const AxisLines& axis, Span span, Use use) {
  const auto by_span = [&](auto length) {
    constexpr int kLong = decltype(length)::value;
    if (span == Span::suffix) return use(LineShape<kLong, Span::suffix>());
    use(LineShape<kLong, Span::between>());
  };
  if (axis.length <= 16) return by_span(std::integral_constant<int, 16>());
  if (axis.length <= 32) return by_span(std::integral_constant<int, 32>());
  if (axis.length <= 48) return by_span(std::integral_constant<int, 48>());
  by_span(std::integral_constant<int, 64>());
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
