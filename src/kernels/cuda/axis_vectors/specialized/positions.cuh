#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Gates and positions where sizes are known to the compiler. Running sums along lines are products
/// with triangles of ones.
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// Gates less a half, as multiples of a small power of two: sums along a line are exact, so
/// positions are bitwise equal in whatever order they are made, never fall along a line, and rise
/// by at most one a patch.
template <int Long>
struct Gates {
  // Numbers of this size have neighbours 2^-20 or 2^-19 apart, and sums of half as many halves as
  // there are places are no larger.
  static constexpr float kRounding = Long <= 32 ? 12.0F : 24.0F;
  static_assert(kHeadSize == 64);  // the default scale is 1/8
  float scale, offset, given_scale;

  Gates() = default;
  __device__ Gates(const Params& p, int head) {
    given_scale = per_head(p.gate_scale, head, 0.125F);
    scale = -kLog2E * given_scale;
    offset = -kLog2E * per_head(p.gate_offset, head, 0.0F);
  }
  __device__ float operator()(float score) const {
    const float gate = approximate_reciprocal(1.0F + power_of_2(fmaf(score, scale, offset)));
    return (gate + kRounding) - (kRounding + 0.5F);
  }
  /// d gate / d (its logit).
  __device__ static float slope(float gate) { return fmaf(-gate, gate, 0.25F); }
};

/// Ones where place k of a n8 fragment lies before place n or is it (`FromBegin`), or behind it, as
/// B; k in the order in which a result's numbers become A.
template <bool FromBegin>
struct Triangle {
  std::uint32_t even, odd;

  __device__ Triangle() {
    const Lane lane;
    const std::uint32_t one = __float_as_int(1.0F);
    even = (FromBegin ? 2 * lane.t <= lane.g : 2 * lane.t >= lane.g) ? one : 0;
    odd = (FromBegin ? 2 * lane.t + 1 <= lane.g : 2 * lane.t + 1 >= lane.g) ? one : 0;
  }
};

/// One n8 fragment of numbers as A, in as many digits as tf32 has; `low` gets the rest.
struct N8AsA {
  std::uint32_t high[4], low[4];

  __device__ explicit N8AsA(const float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float number = x[i % 2 * 2 + i / 2];
      high[i] = __float_as_int(number) & 0xffffe000u;
      low[i] = __float_as_int(number - __uint_as_float(high[i]));
    }
  }
};

/// Running sums along lines; calls use(n8 fragment, sums) for one n8 fragment after another, from
/// the begin or the end. After that x[n8 fragment] is not read any more. Unless `Exact`, of x just
/// the digits that tf32 has.
template <bool FromBegin, bool Exact, int N8, class Use>
__device__ void sum_along(const float (&x)[N8][4], Use use) {
  const Triangle<FromBegin> triangle;
  const std::uint32_t one = __float_as_int(1.0F);
  float before[4] = {};
#pragma unroll
  for (int i = 0; i < N8; ++i) {
    const int n8 = FromBegin ? i : N8 - 1 - i;
    const N8AsA a(x[n8]);
    float sums[4];
    multiply_tf32(sums, a.high, triangle.even, triangle.odd, before);
    if constexpr (Exact) mma_tf32(sums, a.low, triangle.even, triangle.odd);
    if (i + 1 < N8) {
      mma_tf32(before, a.high, one, one);
      if constexpr (Exact) mma_tf32(before, a.low, one, one);
    }
    use(n8, sums);
  }
}

/// Of each of this lane's two rows the number at the patch's own place, in all four lanes.
template <int N8>
__device__ float2 at_own_place(const float (&x)[N8][4], int own) {
  const Lane lane;
  float mine[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int tile = 0; tile < N8 / 2; ++tile)
      if (own == 16 * tile)
        mine[half] = lane.g % 2 ? x[2 * tile + half][2 * half + 1] : x[2 * tile + half][2 * half];
  const int from = lane.g * 4 + lane.g / 2;
  return make_float2(__shfl_sync(0xffffffffu, mine[0], from),
                     __shfl_sync(0xffffffffu, mine[1], from));
}

/// Gates, less a half, and positions of a warp's patches from their scores, `own` the first one's
/// place. Behind the line's end Span::suffix has gates 0; else numbers there mean nothing.
template <class Lines, int N8>
__device__ void make_positions(float (&position)[N8][4], float (&gate)[N8][4],
                               const float (&score)[N8][4], const Gates<Lines::kLong>& gates,
                               int length, int own) {
  const Lane lane;
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) gate[n8][e] = gates(score[n8][e]);
  if (Lines::kSuffix && length < Lines::kLong) {
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (n8 * 8 + 2 * lane.t + e % 2 >= length) gate[n8][e] = -0.5F;
  }
  sum_along<!Lines::kSuffix, true>(gate, [&](int n8, const float(&sums)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) position[n8][e] = sums[e];
  });
  if constexpr (Lines::kSuffix) {
    const float begin = 0.5F * Lines::kLong - lane.t;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) position[n8][e] += begin - (n8 * 4 + e % 2 * 0.5F);
  } else {
    // Sums from the begin, less what comes before the patch: to its right without its own gate, to
    // its left without the other's. Then a half for each step.
    const float2 own_sum = at_own_place(position, own), own_gate = at_own_place(gate, own);
    const int offset = own + lane.g - 2 * lane.t;
    const float begin = -0.5F * offset;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int ahead = n8 * 8 + e % 2 - e / 2 * 8;
        position[n8][e] -= e < 2 ? own_sum.x : own_sum.y;
        const float nearer = (e < 2 ? own_gate.x : own_gate.y) - gate[n8][e];
        if (ahead < offset) position[n8][e] += nearer;
        position[n8][e] += begin + 0.5F * ahead;
      }
  }
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
