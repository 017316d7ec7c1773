#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/cope/smem.h"
#include "kernels/cuda/cope/steps.cuh"

/// The steps that only the backward pass has.
namespace sape2::kernels::cuda::cope {

/// Adds a tile's steps to the gradients of this warp's table values, which are 0 before the `first`
/// tile. Two lanes take a query, one from each end of the tile: positions never turn round, so each
/// bin is left once, and only where the two meet do both have a part in one.
__device__ inline void add_steps(float* dvalues, int pitch, const float2* steps, bool first) {
  constexpr int kAhead = 8;  // steps read before any is taken
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
  const bool from_end = lane >= 16;
  float* const bins = dvalues + row * pitch;
  const float2* const from = steps + row * kStepPitch + (from_end ? kRowTile - 1 : 0);
  const int stride = from_end ? -1 : 1;
  float before = from[0].x;
  int current = static_cast<int>(before);
  float low = 0.0F, high = 0.0F;
  const auto leave = [&](int bin, float sum) { bins[bin] = first ? sum : bins[bin] + sum; };
#pragma unroll 1
  for (int begin = 0; begin < kRowTile / 2; begin += kAhead) {
    float2 ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = from[(begin + i) * stride];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      // Sums in another order may turn round by their rounding.
      before = from_end ? fmaxf(before, ahead[i].x) : fminf(before, ahead[i].x);
      const int below = static_cast<int>(before), distance = below - current;
      if (distance != 0) {
        if (distance != 1) leave(current + 1, high);
        if (distance != -1) leave(current, low);
        const float left = low;
        low = distance == 1 ? high : 0.0F;
        high = distance == -1 ? left : 0.0F;
        current = below;
      }
      const float share = before - static_cast<float>(below);
      low += (1.0F - share) * ahead[i].y;
      high += share * ahead[i].y;
    }
  }
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    __syncwarp();
    if (from_end == (turn == 1)) {
      bins[current] += low;
      bins[current + 1] += high;
    }
  }
  __syncwarp();
}

/// c += tileᵀ · b: 16 of the tile's columns (column …) meet b's columns, k along the rows of both.
template <class T, int N8>
__device__ void add_transposed_product(float (&c)[N8][4], const Tile<T>& tile, int column,
                                       const Tile<T>& b) {
#pragma unroll
  for (int k = 0; k < kRowTile; k += 16) {
    const auto fragment = load_a_transposed(tile, k, column);
#pragma unroll
    for (int n8 = 0; n8 < N8; n8 += 2) {
      FragmentB<T> columns[2];
      load_b_columns(columns, b, k, n8 * 8);
      mma(c[n8], fragment, columns[0]);
      mma(c[n8 + 1], fragment, columns[1]);
    }
  }
}

/// This warp's rows of a square in registers to one in shared memory.
template <class T>
__device__ void store_square(const Tile<T>& tile, const CopeN8& x) {
  const Lane lane;
  const int row = threadIdx.x / 32 * 16 + lane.g;
#pragma unroll
  for (int n8 = 0; n8 < kCopeN8; ++n8)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float a = x[n8][2 * half], b = x[n8][2 * half + 1];
      if constexpr (kIsFp32<T>) {
        store_pair(tile, row + 8 * half, n8 * 8 + 2 * lane.t, make_float2(a, b));
      } else {
        store_pair(tile, row + 8 * half, n8 * 8 + 2 * lane.t, pack<T>(a, b));
      }
    }
}

/// Adds what a block's sums hold to this lane's part of one row. All are read before any is used.
template <int N8>
__device__ void add_sums(float (&x)[N8][4], int half, const float* row, int columns) {
  const Lane lane;
  float sums[N8][2];
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = n8 * 8 + 2 * lane.t + e;
      sums[n8][e] = column < columns ? row[column] : 0.0F;
    }
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 2; ++e) x[n8][2 * half + e] += sums[n8][e];
}

template <int N8>
__device__ void keep_sums(float* row, const float (&x)[N8][4], int half, int columns) {
  const Lane lane;
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = n8 * 8 + 2 * lane.t + e;
      if (column < columns) row[column] = x[n8][2 * half + e];
    }
}

}  // namespace sape2::kernels::cuda::cope
