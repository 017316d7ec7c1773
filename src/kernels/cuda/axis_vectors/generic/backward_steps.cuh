#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/common/element.cuh"

/// The pieces of the way back through stage 1.
namespace sape2::kernels::cuda::axis_vectors {

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
template <class Number, int Pieces>
__device__ void load_gradients(float (&line)[Pieces][4], const Number* first, const Number* second,
                               int length) {
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
    for (int e = 0; e < 4; ++e) line[piece][e] = 0.0F;
  for_each_place<Pieces>(length, [&](int piece, int e, int place) {
    const Number* const from = e < 2 ? first : second;
    if (from != nullptr) line[piece][e] = widen(from[place]);
  });
}

/// One of this lane's rows of a result to a row of float32 sums, or added to it: all is read before
/// the first pair is written.
template <int Pieces>
__device__ void sum_row(float* to, const float (&c)[Pieces][4], int half, int head_size, bool add) {
  const Lane lane;
  if (head_size % 2 != 0) {
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = piece * 8 + 2 * lane.t + e;
        if (column < head_size) to[column] = (add ? to[column] : 0.0F) + c[piece][2 * half + e];
      }
    return;
  }
  float2 pairs[Pieces];
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
    const int column = piece * 8 + 2 * lane.t;
    pairs[piece] = add && column < head_size ? *reinterpret_cast<const float2*>(to + column)
                                             : make_float2(0.0F, 0.0F);
  }
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
    const int column = piece * 8 + 2 * lane.t;
    if (column < head_size)
      *reinterpret_cast<float2*>(to + column) =
          make_float2(pairs[piece].x + c[piece][2 * half], pairs[piece].y + c[piece][2 * half + 1]);
  }
}

/// Adds one of this lane's rows of a result to a row of a tensor. In the aligned case all is read,
/// without branches, before the first word is written: one wait instead of many.
template <class T, int Pieces>
__device__ void add_to_row(T* to, const float (&c)[Pieces][4], int half, int head_size,
                           bool aligned) {
  const Lane lane;
  if (!aligned) {
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = piece * 8 + 2 * lane.t + e;
        if (column < head_size) to[column] = narrow<T>(widen(to[column]) + c[piece][2 * half + e]);
      }
    return;
  }
  using Pair = std::conditional_t<kIsWide<T>, float2, std::uint32_t>;
  Pair pairs[Pieces];
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece)
    pairs[piece] = *reinterpret_cast<const Pair*>(to + min(piece * 8 + 2 * lane.t, head_size - 2));
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
    float2 sum;
    if constexpr (kIsWide<T>) {
      sum = pairs[piece];
    } else {
      sum = unpack<T>(pairs[piece]);
    }
    set<T>(pairs[piece], sum.x + c[piece][2 * half], sum.y + c[piece][2 * half + 1]);
    const int column = piece * 8 + 2 * lane.t;
    if (column < head_size) *reinterpret_cast<Pair*>(to + column) = pairs[piece];
  }
}

/// A result's beginning: `from`, or zeros.
template <int Pieces>
__device__ void choose(float (&c)[Pieces][4], const float (&from)[Pieces][4], bool taken) {
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[piece][e] = taken ? from[piece][e] : 0.0F;
}

}  // namespace sape2::kernels::cuda::axis_vectors
