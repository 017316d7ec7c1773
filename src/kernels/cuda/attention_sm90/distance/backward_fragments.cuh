#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/attention_sm90/distance/bias.cuh"
#include "kernels/cuda/common/element.cuh"

/// Arithmetic on a tile of pairs, most of it in 16 bits, as they go from the warpgroups that make
/// weights to the one that sums.
namespace sape2::kernels::cuda::sm90 {

template <class T>
using PairFragments = FragmentA<T>[kPairN8 / 2];

/// Whether one of a pair is, for any lane of a warp.
template <class T>
__device__ bool is_infinite(std::uint32_t greatest) {
  using Pair = std::conditional_t<std::is_same_v<T, Bf16>, __nv_bfloat162, __half2>;
  constexpr std::uint32_t infinite = std::is_same_v<T, Bf16> ? 0x7f807f80u : 0x7c007c00u;
  return !__all_sync(0xffffffffu, __hbneu2(reinterpret_cast<const Pair&>(greatest),
                                           reinterpret_cast<const Pair&>(infinite)));
}
__device__ inline void add_tile(float (&to)[kPairN8][4], const float (&from)[kPairN8][4]) {
#pragma unroll
  for (int n8 = 0; n8 < kPairN8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) to[n8][e] += from[n8][e];
}

/// Else the compiler may keep the float32 numbers until the rounded ones are used.
template <class T>
__device__ void round_here(FragmentA<T>& a) {
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a.r[i]));
}
template <class T>
__device__ void as_fragments(PairFragments<T>& to, const float (&from)[kPairN8][4]) {
#pragma unroll
  for (int k = 0; k < kPairN8 / 2; ++k) {
    to[k] = as_a<T>(from[2 * k], from[2 * k + 1]);
    round_here(to[k]);
  }
}
template <class T>
__device__ void limit(PairFragments<T>& a) {
#pragma unroll
  for (int k = 0; k < kPairN8 / 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k].r[i] = within_range<T>(a[k].r[i]);
}
template <class T>
__device__ void multiply(PairFragments<T>& to, const PairFragments<T>& by) {
#pragma unroll
  for (int k = 0; k < kPairN8 / 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) to[k].r[i] = multiply_pairs<T>(by[k].r[i], to[k].r[i]);
}
/// The logits' gradients: weights times (their gradients less the mean).
template <class T>
__device__ void make_gradients(PairFragments<T>& to, const PairFragments<T>& weights,
                               const float (&differences)[kPairN8][4]) {
  as_fragments<T>(to, differences);
  limit<T>(to);
  multiply<T>(to, weights);
}

/// sum + Σ gradients · numbers.
template <class T>
__device__ float add_product(float sum, const PairFragments<T>& gradients,
                             const float (&numbers)[kPairN8][4]) {
#pragma unroll
  for (int k = 0; k < kPairN8 / 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack<T>(gradients[k].r[i]);
      const float* const by = numbers[2 * k + i / 2] + i % 2 * 2;
      sum = fmaf(pair.x, by[0], fmaf(pair.y, by[1], sum));
    }
  return sum;
}

/// From squared distances to distances, added to `others`, and their inverses, whose greatest it
/// returns.
template <class T>
__device__ std::uint32_t inverse_roots(float (&c)[kPairN8][4], PairFragments<T>& inverse,
                                       const float (&others)[kPairN8][4]) {
  std::uint32_t greatest = 0;
#pragma unroll
  for (int k = 0; k < kPairN8 / 2; ++k) {
    float by[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& square = c[2 * k + i / 4][i % 4];
      by[i / 4][i % 4] = inverse_root_of_distance(square);
      square = fmaf(fabsf(square), by[i / 4][i % 4], others[2 * k + i / 4][i % 4]);
    }
    inverse[k] = as_a<T>(by[0], by[1]);
    round_here(inverse[k]);
#pragma unroll
    for (int i = 0; i < 4; ++i) greatest = greater_pairs<T>(greatest, inverse[k].r[i]);
  }
  return greatest;
}

/// Numbers of a lane's columns of a tile, from its first pair on. Shared memory answers slowly
/// beside products, so they are asked for before those begin.
struct PairNumbers {
  float2 of[kPairN8];

  PairNumbers() = default;
  __device__ explicit PairNumbers(const float2* from) {
#pragma unroll
    for (int n8 = 0; n8 < kPairN8; ++n8) of[n8] = from[n8 * 4];
  }
  __device__ float at(int n8, int e) const {
    return e % 2 ? of[n8].y : of[n8].x;
  }
};

}  // namespace sape2::kernels::cuda::sm90
