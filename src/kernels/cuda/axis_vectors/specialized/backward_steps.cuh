#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/axis_vectors/specialized/positions.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// The n8 fragments of the backward pass through stage 1, where sizes are known to the compiler.
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// What a warp keeps in shared memory beside tokens and table: `work` has its table values, which
/// give way to positions, then the vectors' gradients; both make room for the scores' gradients and
/// a place where rows are put in order. `bins` has the table values' gradients, as matrix loads
/// like them.
template <class Lines>
struct WarpSmem {
  // Numbers. Along Span::between the next patch's positions begin one lower.
  static constexpr int kValuePitch = Lines::kWindow + (Lines::kSuffix ? 4 : 8);
  static constexpr int kLinePitch = Lines::kLong + 4;
  static constexpr int kScorePitch = 2 * Lines::kLong + 16;  // bytes
  static constexpr int kBinPitch = 2 * Lines::kWindow + 16;

  static constexpr int kGradients = 16 * kValuePitch * 4;  // where they begin
  // Behind the scores' gradients rows of dq are put in order.
  static constexpr int kScores = 16 * kScorePitch, kRows = 16 * kRowBytes<kHeadSize>;
  static constexpr int kBytes = round_up(
      std::max(kGradients + 16 * kLinePitch * 2, kScores + kSharedAlignment - 128 + kRows), 128);
  static constexpr int kBinBytes = 16 * kBinPitch;

  static_assert(kValuePitch >= kLinePitch);

  /// Where a pair of numbers along a line is kept: the line's first half as it is, then the second
  /// from the line's end on.
  __device__ static bool turned(int n8) { return n8 >= Lines::kN8 / 2; }
  __device__ static int pair(int row, int n8, int t) {
    return row * kLinePitch +
           (turned(n8) ? Lines::kLong / 2 + Lines::kLong - 2 - n8 * 8 - 2 * t : n8 * 8 + 2 * t);
  }
};

/// The vectors' gradients of this lane's two rows as pairs of 16-bit numbers: asked for, and kept
/// in shared memory when there is time to wait for them.
template <class T, class Lines>
struct Gradients {
  using Work = WarpSmem<Lines>;
  const unsigned char* data;  // of the head's first patch
  int width;
  bool fp32;  // float32
  std::uint32_t numbers[2][Lines::kN8];
  int length[2];  // of the rows that exist

  __device__ Gradients(const VectorPlaces<const void*>& from, const Geometry& g,
                       std::int64_t batch_head)
      : width(from.widths[0]), fp32(from.fp32) {
    const int size = fp32 ? sizeof(float) : sizeof(T);
    data = static_cast<const unsigned char*>(from.axes[0]) +
           (batch_head * g.padded_tokens + g.prefix) * (width * size);
  }
  /// Those of 16 patches from `place` on, if `wanted`; zeros behind the line's end.
  __device__ void ask(const AxisLines& axis, int line, int place, bool wanted) {
    const Lane lane;
    const int step = axis.position_stride * width;
    const int begin = line * axis.line_stride * width + (place + lane.g) * step + 2 * lane.t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = wanted && line < axis.lines && place + lane.g + 8 * half < axis.length;
      length[half] = exists ? axis.length : 0;
    }
    if (fp32) {
      read<float2>(begin, step, [](float2 pair) { return pack<T>(pair.x, pair.y); });
    } else {
      read<std::uint32_t>(begin, step, [](std::uint32_t pair) { return pair; });
    }
  }
  __device__ void keep(unsigned char* work) const {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n8 = 0; n8 < Lines::kN8; ++n8) {
        const bool whole = n8 * 8 + 2 * lane.t + 1 < length[half];
        const std::uint32_t both = numbers[half][n8], pair = whole ? both : both & 0xffffu;
        reinterpret_cast<std::uint32_t*>(
            work + Work::kGradients)[Work::pair(lane.g + 8 * half, n8, lane.t) / 2] =
            Work::turned(n8) ? pair << 16 | pair >> 16 : pair;
      }
  }
  /// d[e] of one n8 fragment, from there.
  __device__ static void get(float (&d)[4], const unsigned char* work, int n8) {
    const Lane lane;
    const bool turned = Work::turned(n8);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 pair = unpack<T>(reinterpret_cast<const std::uint32_t*>(
          work + Work::kGradients)[Work::pair(lane.g + 8 * half, n8, lane.t) / 2]);
      d[2 * half] = turned ? pair.y : pair.x;
      d[2 * half + 1] = turned ? pair.x : pair.y;
    }
  }

 private:
  /// All are read before the first is looked at. `begin`: the lane's first number; `step`: from
  /// patch to patch.
  template <class Pair, class Round>
  __device__ void read(int begin, int step, Round round) {
    const Lane lane;
    const auto* const from = reinterpret_cast<const Pair*>(data + begin * (sizeof(Pair) / 2));
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n8 = 0; n8 < Lines::kN8; ++n8) {
        Pair pair{};
        if (n8 * 8 + 2 * lane.t < length[half]) pair = from[half * 4 * step + n8 * 4];
        numbers[half][n8] = round(pair);
      }
  }
};

/// Positions beside the gradients, in the same order.
template <class Lines, int N8>
__device__ void keep_positions(unsigned char* work, const float (&position)[N8][4]) {
  using Work = WarpSmem<Lines>;
  const Lane lane;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      const bool turned = Work::turned(n8);
      reinterpret_cast<float2*>(work)[Work::pair(lane.g + 8 * half, n8, lane.t) / 2] =
          make_float2(position[n8][2 * half + turned], position[n8][2 * half + !turned]);
    }
}

/// Gradients of interpolation: those of 16 patches' vectors spread over their table values', which
/// are zeros before. Two lanes a patch walk along the line, from both ends; a position lies at most
/// one from the last, so a bin that is left gets no more, and the last two of either lane are
/// settled one lane after the other.
template <class T, class Lines>
__device__ void spread_over_bins(const unsigned char* work, unsigned char* bins, int origin) {
  using Work = WarpSmem<Lines>;
  constexpr int kHalf = Lines::kLong / 2;
  const int row = threadIdx.x % 16, half = threadIdx.x / 16 % 2;
  const bool falling = half == !Lines::kSuffix;  // positions along the walk
  const int begin = row * Work::kLinePitch + half * kHalf;
  const auto* const positions =
      reinterpret_cast<const float4*>(reinterpret_cast<const float*>(work) + begin);
  const auto* const gradients =
      reinterpret_cast<const uint2*>(reinterpret_cast<const T*>(work + Work::kGradients) + begin);

  // Worked out, since of a choice the compiler would make two additions wherever there is one.
  const int step = Lines::kSuffix ? 2 * half - 1 : 1 - 2 * half;
  const float sign = static_cast<float>(step);
  const Floor start(sign * positions[0].x);
  float base = -start.value;
  T* at = reinterpret_cast<T*>(bins + row * Work::kBinPitch) +
          min(max(step * start.bits + origin, int(falling)), Lines::kWindow - 2 + falling);
  float sum = 0.0F, further = 0.0F;  // of this bin and the next, and the next one's share
#pragma unroll
  for (int i = 0; i < kHalf / 4; ++i) {
    const float4 quad = positions[i];
    const uint2 pairs = gradients[i];
    const float2 d01 = unpack<T>(pairs.x), d23 = unpack<T>(pairs.y);
    const float position[4] = {quad.x, quad.y, quad.z, quad.w};
    const float d[4] = {d01.x, d01.y, d23.x, d23.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float weight = fmaf(position[j], sign, base);
      const T left = narrow<T>(sum - further);
      if (weight >= 1.0F) {
        *at = left;
        at += step;
        sum = further;
        further = 0.0F;
        base -= 1.0F;
        weight -= 1.0F;
      }
      further = fmaf(weight, d[j], further);
      sum += d[j];
    }
  }
  const auto settle = [&] {
    at[0] = narrow<T>(widen(at[0]) + (sum - further));
    at[step] = narrow<T>(widen(at[step]) + further);
  };
  __syncwarp();
  if (!falling) settle();
  __syncwarp();
  if (falling) settle();
  __syncwarp();
}

/// From the positions' gradients to the gates', in place; Span::between has one too at the patch
/// itself, which means nothing.
template <class Lines, int N8>
__device__ void gate_gradients(float (&d)[N8][4], int own) {
  if constexpr (Lines::kSuffix) {
    sum_along<true, false>(d, [&](int n8, const float(&sums)[4]) {
#pragma unroll
      for (int e = 0; e < 4; ++e) d[n8][e] = sums[e];
    });
  } else {
    // To the patch's right everything from there on is all less what comes before; to its left
    // everything up to there, with a minus.
    const Lane lane;
    const std::uint32_t one = __float_as_int(1.0F);
    float all[4] = {};
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) mma_tf32(all, N8AsA(d[n8]).high, one, one);
    const int left = own + lane.g - 2 * lane.t;
    sum_along<true, false>(d, [&](int n8, const float(&sums)[4]) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool right = n8 * 8 + e % 2 - e / 2 * 8 > left;
        d[n8][e] = (right ? all[e] + d[n8][e] : 0.0F) - sums[e];
      }
    });
  }
}

/// Zeros at the patches' own places.
template <int N8>
__device__ void clear_own_place(float (&x)[N8][4], int own) {
  const Lane lane;
#pragma unroll
  for (int tile = 0; tile < N8 / 2; ++tile) {
    const bool here = own == 16 * tile && lane.t == lane.g / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        float& own_x = x[2 * tile + half][2 * half + odd];
        own_x = here && lane.g % 2 == odd ? 0.0F : own_x;
      }
  }
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
