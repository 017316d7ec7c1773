#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// The n8 fragments of stage 1: scores along a line, gates, positions. One warp works on 16
/// patches of one line. Numbers along their line stay where tensor cores leave them, as
/// line[n8][e]: of patch lane.g + e/2·8 at place n8·8 + 2·lane.t + e%2.
namespace sape2::kernels::cuda::axis_vectors {

/// A n8 fragment of A from any source of numbers, at(row, k) with row and k within the n8 fragment.
template <class T, class At>
__device__ FragmentA<T> make_a(At at) {
  const Lane lane;
  FragmentA<T> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane.g + i % 2 * 8, k = 2 * lane.t + i / 2 * 8;
    set<T>(a.r[i], at(row, k), at(row, k + 1));
  }
  return a;
}

/// With the fast units where T keeps few digits anyway.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (kIsFp32<T>) {
    return 1.0F / (1.0F + expf(-x));
  } else {
    return __fdividef(1.0F, 1.0F + __expf(-x));
  }
}

/// Where the window of a patch at place `own` of its line begins.
__device__ inline int window_first(const AxisLines& axis, int own) {
  return max(axis.origin - own, 0);
}

/// ⌊x⌋ as a number and as bits, without the slow conversion unit: added to this, rounding down, a
/// number of fewer than 22 binary places leaves its floor in the last bits.
inline constexpr float kFloorShift = 12582912.0F;  // 1.5 · 2^23
struct Floor {
  float value;
  int bits;
  __device__ explicit Floor(float x) {
    const float shifted = __fadd_rd(x, kFloorShift);
    value = shifted - kFloorShift;
    bits = __float_as_int(shifted) - __float_as_int(kFloorShift);
  }
};

/// A position where tables have one; what is no number stays so.
__device__ inline float clamped_position(float position, const AxisLines& axis) {
  const float low = -axis.origin, high = axis.positions - 1 - axis.origin;
  float p;
  asm("{.reg .f32 x; max.NaN.f32 x, %1, %2; min.NaN.f32 %0, x, %3;}"
      : "=f"(p)
      : "f"(position), "f"(low), "f"(high));
  return p;
}

/// Where a clamped position lies: between rows `below` and `above` of a window that begins at table
/// row `first`; they are one where it is an integer. A position that is no number gets some row and
/// a weight that is none.
struct Between {
  int below, above;
  float weight;

  __device__ Between(float position, const AxisLines& axis, int first) {
    const Floor floor(position);
    weight = position - floor.value;
    below = min(max(floor.bits + axis.origin - first, 0), window_rows(axis) - 1);
    above = below + (weight > 0.0F);
  }
};

/// Of each row of a group, its token; in shared memory. Ends with a barrier.
__device__ inline void list_tokens(const AxisLines& axis, const Geometry& g, int group,
                                   int* tokens) {
  for (int row = threadIdx.x; row < axis.group_rows; row += kThreads)
    tokens[row] = axis.token(g, group, row);
  __syncthreads();
}

/// q·k of patches first … first+15 of a group with all patches of their line, which begins at row
/// `begin`.
template <class T, int HeadSize, int N8>
__device__ void line_scores(float (&line)[N8][4], const AxisLines& axis, const Tile<T>& q,
                            const Tile<T>& k, int first, int begin) {
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) line[n8][e] = 0.0F;
#pragma unroll
  for (int kk = 0; kk < HeadSize; kk += 16) {
    const auto a = load_a(q, first, kk);
#pragma unroll
    for (int n8 = 0; n8 < N8; n8 += 2) {
      if (n8 * 8 >= axis.line_rows) break;
      FragmentB<T> b[2];
      load_b_rows(b, k, begin + n8 * 8, kk);
      mma(line[n8], a, b[0]);
      mma(line[n8 + 1], a, b[1]);
    }
  }
}

/// Calls use(n8 fragment, e, place) for every number of a line that belongs to a place.
template <int N8, class Use>
__device__ void for_each_place(int length, Use use) {
  const Lane lane;
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int place = n8 * 8 + 2 * lane.t + e % 2;
      if (place < length) use(n8, e, place);
    }
}

/// Running sums along lines, in place: each number becomes the sum of itself and all before it (or
/// behind it, where not `FromBegin`).
template <bool FromBegin, int N8>
__device__ void running_sums(float (&line)[N8][4]) {
  constexpr unsigned kAll = 0xffffffffu;
  const int t = FromBegin ? threadIdx.x % 4 : 3 - threadIdx.x % 4;  // lanes that come before
  const auto of_lane = [](float x, int distance) {
    return FromBegin ? __shfl_up_sync(kAll, x, distance, 4)
                     : __shfl_down_sync(kAll, x, distance, 4);
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float carry = 0.0F;
#pragma unroll
    for (int i = 0; i < N8; ++i) {
      const int n8 = FromBegin ? i : N8 - 1 - i;
      float& first = line[n8][2 * half + !FromBegin];
      float& second = line[n8][2 * half + FromBegin];
      float sum = first + second;
      const float one = of_lane(sum, 1);
      if (t >= 1) sum += one;
      const float two = of_lane(sum, 2);
      if (t >= 2) sum += two;
      const float before = of_lane(sum, 1);
      first += carry + (t >= 1 ? before : 0.0F);
      second += first;
      carry += __shfl_sync(kAll, sum, FromBegin ? 3 : 0, 4);
    }
  }
}

/// Sums along lines by span: forward, from gates to positions; backward, from the positions'
/// gradients to the gates'. `own` is the place of the lane's first patch; the other is own + 8.
template <bool Forward, int N8>
__device__ void sum_by_span(float (&line)[N8][4], Span span, int own) {
  if (span == Span::suffix) return running_sums<!Forward>(line);
  const Lane lane;
  float left[N8][4];
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int offset = n8 * 8 + 2 * lane.t + e % 2 - own - e / 2 * 8;
      left[n8][e] = offset < 0 ? line[n8][e] : 0.0F;
      if (offset <= 0) line[n8][e] = 0.0F;
    }
  running_sums<Forward>(line);
  running_sums<!Forward>(left);
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int offset = n8 * 8 + 2 * lane.t + e % 2 - own - e / 2 * 8;
      line[n8][e] = offset > 0 ? line[n8][e] : offset < 0 ? -left[n8][e] : 0.0F;
    }
}

/// Positions of a warp's patches from their scores, clamped; what lies behind the line's end means
/// nothing.
template <class T, int N8>
__device__ void line_positions(float (&position)[N8][4], const float (&score)[N8][4],
                               const AxisLines& axis, Span span, int own, float gate_scale,
                               float gate_offset) {
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) position[n8][e] = 0.0F;
  for_each_place<N8>(axis.length, [&](int n8, int e, int) {
    position[n8][e] = sigmoid<T>(gate_scale * score[n8][e] + gate_offset);
  });
  sum_by_span<true>(position, span, own);
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) position[n8][e] = clamped_position(position[n8][e], axis);
}

/// What a patch's window holds of a table row, 0 outside of it.
__device__ inline float window_at(const float* window, const AxisLines& axis, int own, int row,
                                  int pitch) {
  const unsigned place = row - window_first(axis, own);
  return place < unsigned(pitch) ? window[place] : 0.0F;
}

/// Prefix tokens and padding have zero vectors; the block of a head's first group writes them.
template <class Number>
__device__ void clear_unused(const Geometry& g, Number* vectors, int width) {
  const int unused = g.prefix + g.padded_tokens - g.tokens;
  for (int i = threadIdx.x; i < width * unused; i += blockDim.x) {
    const int place = i / width;
    const int token = place < g.prefix ? place : g.tokens + place - g.prefix;
    vectors[std::int64_t(token) * width + i % width] = narrow<Number>(0.0F);
  }
}

/// Calls use(integral_constant) with the compiled head size; stage 1 is small, so there are two.
template <class Use>
void dispatch_head(int head_size, Use use) {
  static_assert(kLargestHead == 128, "calls of larger heads need a compiled size of their own");
  if (head_size <= 64) return use(std::integral_constant<int, 64>());
  return use(std::integral_constant<int, kLargestHead>());
}

/// Calls use(integral_constant) with the number of 8-wide n8 fragments that holds both axes' lines.
template <class Use>
void dispatch_line_n8(const AxisLines (&axes)[2], Use use) {
  static_assert(kLongestLine == 16 * 8, "longer lines need a compiled size of their own");
  const int rows = axes[0].line_rows > axes[1].line_rows ? axes[0].line_rows : axes[1].line_rows;
  if (rows <= 32) return use(std::integral_constant<int, 4>());
  if (rows <= 64) return use(std::integral_constant<int, 8>());
  return use(std::integral_constant<int, 16>());
}

}  // namespace sape2::kernels::cuda::axis_vectors
