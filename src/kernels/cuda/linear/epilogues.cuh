#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/linear/fits.h"
#include "kernels/cuda/linear/staging.cuh"
#include "kernels/cuda/training/normal.cuh"

#include <cstdint>

/// Epilogues: what a warp does with its 16 rows of a product before they leave for global memory.
/// Each has
///   Params: what it needs besides the product, from the host;
///   begin(row, column): before the product, to load what finish() will need;
///   finish(c, row, column): after it; c (N8, 4) is the warp's part of the accumulators;
///   end(): after the warp's last tile;
///   kSums: whether it sums columns. Then add_sums() follows, for the whole block.
namespace sape2::kernels::cuda::linear {

/// Two neighbouring values of a row vector; zeros if it is null or ends before them.
__device__ inline float2 pair_at(const Bf16* vector, int column, int width) {
  if (vector == nullptr || column >= width) return make_float2(0.0F, 0.0F);
  return unpack<Bf16>(__ldg(reinterpret_cast<const unsigned*>(vector + column)));
}

/// Calls visit(left, right, column, sixteen, n8) for each 16 columns of a panel: its two n8
/// fragments, the column of this lane's first value, and the numbers of the 16 and of `left`.
template <int N8, class Visit>
__device__ void for_sixteens(float (&c)[N8][4], int panel, int column, Visit visit) {
  const int lane_column = column + panel * kPanel + threadIdx.x % 4 * 2;
#pragma unroll
  for (int sixteen = 0; sixteen < 4; ++sixteen) {
    const int n8 = panel * 8 + sixteen * 2;
    visit(c[n8], c[n8 + 1], lane_column + sixteen * 16, sixteen, n8);
  }
}

struct RoundedParams {
  CUtensorMap out;
  int width;
};
/// out = c.
template <int N8, int Slots>
struct Rounded {
  using Params = RoundedParams;
  static constexpr bool kSums = false;

  const Params& p;
  Staging<Slots> staging;

  __device__ Rounded(const Params& params, unsigned char* shared, Mbarrier*)
      : p(params), staging{shared} {}
  __device__ void begin(int, int) {}
  __device__ void finish(float (&c)[N8][4], int row, int column) {
#pragma unroll
    for (int panel = 0; panel < N8 / 8; ++panel) {
      if (column + panel * kPanel >= p.width) break;
      const int slot = staging.template take<1>();
      for_sixteens(c, panel, column, [&](auto& left, auto& right, int, int sixteen, int) {
        FragmentA<Bf16> pairs;
        pairs.r[0] = pack<Bf16>(left[0], left[1]);
        pairs.r[1] = pack<Bf16>(left[2], left[3]);
        pairs.r[2] = pack<Bf16>(right[0], right[1]);
        pairs.r[3] = pack<Bf16>(right[2], right[3]);
        staging.slot(slot).store(sixteen, pairs);
      });
      staging.send(slot, p.out, column + panel * kPanel, row);
    }
  }
  __device__ void end() {
    staging.drain();
  }
};

struct GeluParams {
  CUtensorMap out, derivative;
  const Bf16* bias;  // or null
  int width;
  bool differentiates;
};
/// out = gelu(c + bias) and, if `differentiates`, derivative = gelu'(c + bias).
template <int N8, int Slots>
struct Gelu {
  using Params = GeluParams;
  static constexpr bool kSums = false;

  const Params& p;
  Staging<Slots> staging;

  __device__ Gelu(const Params& params, unsigned char* shared, Mbarrier*)
      : p(params), staging{shared} {}
  __device__ void begin(int, int) {}

  __device__ static void both(float a, float b, float2 bias, std::uint32_t& out,
                              std::uint32_t& derivative) {
    a += bias.x;
    b += bias.y;
    const Normal of_a = normal_at<Bf16>(a), of_b = normal_at<Bf16>(b);
    out = pack<Bf16>(a * of_a.below, b * of_b.below);
    derivative = pack<Bf16>(fmaf(a, of_a.density, of_a.below), fmaf(b, of_b.density, of_b.below));
  }
  __device__ void finish(float (&c)[N8][4], int row, int column) {
#pragma unroll
    for (int panel = 0; panel < N8 / 8; ++panel) {
      const int at = column + panel * kPanel;
      if (at >= p.width) break;
      const int slot = p.differentiates ? staging.template take<2>() : staging.template take<1>();
      const int second = slot + 1 == Slots ? 0 : slot + 1;
      for_sixteens(c, panel, column, [&](auto& left, auto& right, int at, int sixteen, int) {
        const float2 a = pair_at(p.bias, at, p.width), b = pair_at(p.bias, at + 8, p.width);
        FragmentA<Bf16> out, derivative;
        both(left[0], left[1], a, out.r[0], derivative.r[0]);
        both(left[2], left[3], a, out.r[1], derivative.r[1]);
        both(right[0], right[1], b, out.r[2], derivative.r[2]);
        both(right[2], right[3], b, out.r[3], derivative.r[3]);
        staging.slot(slot).store(sixteen, out);
        if (p.differentiates) staging.slot(second).store(sixteen, derivative);
      });
      staging.send(slot, p.out, at, row);
      if (p.differentiates) staging.send(second, p.derivative, at, row);
    }
  }
  __device__ void end() {
    staging.drain();
  }
};

/// Loads 16 rows of a matrix of the product's shape while the product is computed, one panel into
/// each slot.
template <int N8, int Slots>
struct Loaded {
  static_assert(Slots >= N8 / 8);

  Staging<Slots> staging;
  Mbarrier* arrived;
  int turn = 0;  // how often they have arrived

  __device__ void begin(const CUtensorMap& from, int row, int column) {
    staging.drain();
    if (threadIdx.x % 32 != 0) return;
    mbarrier_expect_tx(arrived, N8 / 8 * kSlotBytes);
#pragma unroll
    for (int panel = 0; panel < N8 / 8; ++panel)
      tma_load(staging.data + panel * kSlotBytes, from, {column + panel * kPanel, row, 0, 0, 0},
               arrived);
  }
  __device__ void wait() {
    mbarrier_wait(arrived, turn++);
  }
};

struct TimesDerivativeParams {
  CUtensorMap out, derivative;
  float* partials;  // (blocks of a group, width)
  int width;
};
/// out = c ∘ derivative, and the sums of its columns before rounding.
template <int N8, int Slots>
struct TimesDerivative {
  using Params = TimesDerivativeParams;
  static constexpr bool kSums = true;

  const Params& p;
  Loaded<N8, Slots> loaded;
  float sums[N8][2] = {};

  __device__ TimesDerivative(const Params& params, unsigned char* shared, Mbarrier* arrived)
      : p(params), loaded{{shared}, arrived} {}
  __device__ void begin(int row, int column) { loaded.begin(p.derivative, row, column); }

  __device__ std::uint32_t times(float a, float b, std::uint32_t derivative, float (&sum)[2]) {
    const float2 d = unpack<Bf16>(derivative);
    a *= d.x;
    b *= d.y;
    sum[0] += a;
    sum[1] += b;
    return pack<Bf16>(a, b);
  }
  __device__ void finish(float (&c)[N8][4], int row, int column) {
    loaded.wait();
#pragma unroll
    for (int panel = 0; panel < N8 / 8; ++panel) {
      const Slot slot = loaded.staging.slot(panel);
      for_sixteens(c, panel, column, [&](auto& left, auto& right, int, int sixteen, int n8) {
        FragmentA<Bf16> pairs = slot.load(sixteen);
        pairs.r[0] = times(left[0], left[1], pairs.r[0], sums[n8]);
        pairs.r[1] = times(left[2], left[3], pairs.r[1], sums[n8]);
        pairs.r[2] = times(right[0], right[1], pairs.r[2], sums[n8 + 1]);
        pairs.r[3] = times(right[2], right[3], pairs.r[3], sums[n8 + 1]);
        slot.store(sixteen, pairs);
      });
      loaded.staging.send(panel, p.out, column + panel * kPanel, row);
    }
  }
  /// Leaves the warp's sums, 8·N8 values, at the beginning of its slots.
  __device__ void end() {
    loaded.staging.drain();
    auto* const to = reinterpret_cast<float*>(loaded.staging.data);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = sums[n8][i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if (lane < 4) to[n8 * 8 + lane * 2 + i] = sum;
      }
    }
  }
  /// Adds the sums of the block's `warps`, whose slots follow each other.
  __device__ void add_sums(const unsigned char* slots, int warps, int place, int column) {
    for (int i = threadIdx.x; i < N8 * 8 && column + i < p.width; i += warps * 32) {
      float total = 0.0F;
      for (int warp = 0; warp < warps; ++warp)
        total += reinterpret_cast<const float*>(slots + warp * Slots * kSlotBytes)[i];
      p.partials[std::int64_t(place) * p.width + column + i] = total;
    }
  }
};

}  // namespace sape2::kernels::cuda::linear
