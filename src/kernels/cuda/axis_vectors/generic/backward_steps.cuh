#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/common/element.cuh"

/// The n8 fragments of the backward pass through stage 1.
namespace sape2::kernels::cuda::axis_vectors::generic {

/// Gradient of interpolation for places first … last−1 of one patch: d spread over the table
/// values' gradients. `places` are positions counted from the window's first row; they go up or
/// down a line in small steps, so sums stay in registers until a step leaves their row.
template <class Number>
__device__ void spread_over_table(int first, int last, int rows, const float* __restrict__ places,
                                  const Number* __restrict__ d, float* __restrict__ dz) {
  int row = 0;
  float below = 0.0F, above = 0.0F;
#pragma unroll 4
  for (int m = first; m < last; ++m) {
    const float place = places[m], dm = widen(d[m]);
    const Floor floor(place);
    const int next = min(max(floor.bits, 0), rows - 1);
    if (next != row) {
      dz[row] += below;
      dz[row + 1] += above;
      row = next;
      below = above = 0.0F;
    }
    const float part = (place - floor.value) * dm;
    above += part;
    below += dm - part;
  }
  dz[row] += below;
  dz[row + 1] += above;
}

/// This lane's two rows of the vectors' gradients; null, and places behind the line's end: zeros.
template <class Number, int N8>
__device__ void load_gradients(float (&line)[N8][4], const Number* first, const Number* second,
                               int length) {
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) line[n8][e] = 0.0F;
  for_each_place<N8>(length, [&](int n8, int e, int place) {
    const Number* const from = e < 2 ? first : second;
    if (from != nullptr) line[n8][e] = widen(from[place]);
  });
}

/// One of this lane's rows of a result to a row of float32 sums, or added to it: all is read before
/// the first pair is written.
template <int N8>
__device__ void sum_row(float* to, const float (&c)[N8][4], int half, int head_size, bool add) {
  const Lane lane;
  if (head_size % 2 != 0) {
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = n8 * 8 + 2 * lane.t + e;
        if (column < head_size) to[column] = (add ? to[column] : 0.0F) + c[n8][2 * half + e];
      }
    return;
  }
  float2 pairs[N8];
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8) {
    const int column = n8 * 8 + 2 * lane.t;
    pairs[n8] = add && column < head_size ? *reinterpret_cast<const float2*>(to + column)
                                          : make_float2(0.0F, 0.0F);
  }
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8) {
    const int column = n8 * 8 + 2 * lane.t;
    if (column < head_size)
      *reinterpret_cast<float2*>(to + column) =
          make_float2(pairs[n8].x + c[n8][2 * half], pairs[n8].y + c[n8][2 * half + 1]);
  }
}

/// Adds one of this lane's rows of a result to a row of a tensor. In the aligned case all is read,
/// without branches, before the first word is written: one wait instead of many.
template <class T, int N8>
__device__ void add_to_row(T* to, const float (&c)[N8][4], int half, int head_size, bool aligned) {
  const Lane lane;
  if (!aligned) {
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = n8 * 8 + 2 * lane.t + e;
        if (column < head_size) to[column] = narrow<T>(widen(to[column]) + c[n8][2 * half + e]);
      }
    return;
  }
  using Pair = std::conditional_t<kIsFp32<T>, float2, std::uint32_t>;
  Pair pairs[N8];
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
    pairs[n8] = *reinterpret_cast<const Pair*>(to + min(n8 * 8 + 2 * lane.t, head_size - 2));
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8) {
    float2 sum;
    if constexpr (kIsFp32<T>) {
      sum = pairs[n8];
    } else {
      sum = unpack<T>(pairs[n8]);
    }
    set<T>(pairs[n8], sum.x + c[n8][2 * half], sum.y + c[n8][2 * half + 1]);
    const int column = n8 * 8 + 2 * lane.t;
    if (column < head_size) *reinterpret_cast<Pair*>(to + column) = pairs[n8];
  }
}

/// A result's beginning: `from`, or zeros.
template <int N8>
__device__ void choose(float (&c)[N8][4], const float (&from)[N8][4], bool taken) {
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n8][e] = taken ? from[n8][e] : 0.0F;
}

}  // namespace sape2::kernels::cuda::axis_vectors::generic
