#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/cope/kernels.h"
#include "kernels/cuda/host/launch.h"

/// What forward and backward share: one tile of 64 queries and 64 keys at a time, 16 queries a
/// warp.
namespace sape2::kernels::cuda::cope {

inline constexpr int kCopeN8 = kRowTile / 8;
using CopeN8 = float[kCopeN8][4];

/// Calls use(n8 fragment, e) for each number that a lane holds of a tile.
template <class Use>
__device__ void for_each_n8(Use use) {
#pragma unroll
  for (int n8 = 0; n8 < kCopeN8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) use(n8, e);
}

/// Table rows first … first+63 in the inputs' type; rows and columns that do not exist are 0.
template <class T, int HeadSize>
__device__ void load_table(const Tile<T>& tile, const Params& p, int first, int head_size) {
#pragma unroll 4
  for (int i = threadIdx.x; i < kRowTile * HeadSize / 2; i += kThreads) {
    const int row = i / (HeadSize / 2), column = i % (HeadSize / 2) * 2;
    const float* const from = p.table + std::int64_t(first + row) * head_size + column;
    const bool exists = first + row < p.positions;
    const float a = exists && column < head_size ? from[0] : 0.0F;
    const float b = exists && column + 1 < head_size ? from[1] : 0.0F;
    if constexpr (kIsFp32<T>) {
      store_pair(tile, row, column, make_float2(a, b));
    } else {
      store_pair(tile, row, column, pack<T>(a, b));
    }
  }
}

/// The table values of this warp's queries, which may be on their way still. `table` holds the
/// whole table where it is `resident`, else it is filled again and again.
template <class T, int HeadSize>
__device__ void make_values(float* values, const Params& p, const Tile<T>& queries,
                            const Tile<T>& table, bool resident, int head_size) {
  const Lane lane;
  const int warp_row = threadIdx.x / 32 * 16;
  for (int first = 0; first < p.positions; first += kRowTile) {
    if (!resident) {
      __syncthreads();
      load_table<T, HeadSize>(table, p, first, head_size);
    }
    cp_async_wait<0>();
    __syncthreads();
    CopeN8 z = {};
    add_product_with_rows(z, queries, warp_row, table, HeadSize);
#pragma unroll
    for (int n8 = 0; n8 < kCopeN8; ++n8) {
      const int column = first + n8 * 8 + 2 * lane.t;
      if (column >= p.positions) continue;
      float* const to = values + (warp_row + lane.g) * p.pitch + column;
      *reinterpret_cast<float2*>(to) = make_float2(z[n8][0], z[n8][1]);
      *reinterpret_cast<float2*>(to + 8 * p.pitch) = make_float2(z[n8][2], z[n8][3]);
    }
  }
  __syncwarp();
}

/// Sums along this lane's two rows, from the end of the tile or from its start, on top of `carry`,
/// which grows by the tile's.
template <bool FromEnd>
__device__ void running_sums(CopeN8& x, float (&carry)[2]) {
  const Lane lane;
  const auto neighbour = [&](float sum, int distance) {
    const float other = FromEnd ? __shfl_down_sync(0xffffffffu, sum, distance, 4)
                                : __shfl_up_sync(0xffffffffu, sum, distance, 4);
    const bool exists = FromEnd ? lane.t + distance < 4 : lane.t >= distance;
    return exists ? other : 0.0F;
  };
  float total[kCopeN8][2];
#pragma unroll
  for (int n8 = 0; n8 < kCopeN8; ++n8)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& first = x[n8][2 * half + (FromEnd ? 1 : 0)];
      float& second = x[n8][2 * half + (FromEnd ? 0 : 1)];
      const float pair = first + second;
      const float before = neighbour(pair, 3) + neighbour(pair, 2) + neighbour(pair, 1);
      first += before;
      second = before + pair;
      total[n8][half] = __shfl_sync(0xffffffffu, second, FromEnd ? 0 : 3, 4);
    }
#pragma unroll
  for (int i = 0; i < kCopeN8; ++i) {
    const int n8 = FromEnd ? kCopeN8 - 1 - i : i;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      x[n8][2 * half] += carry[half];
      x[n8][2 * half + 1] += carry[half];
      carry[half] += total[n8][half];
    }
  }
}

/// Gates of a tile's scores; keys that do not exist have none.
__device__ inline void make_gates(CopeN8& gates, const CopeN8& scores, float gate_scale, int keys) {
  const Lane lane;
  const float factor = -gate_scale * kLog2E;
  for_each_n8([&](int n8, int e) {
    const float gate = __fdividef(1.0F, 1.0F + power_of_2(factor * scores[n8][e]));
    gates[n8][e] = n8 * 8 + 2 * lane.t + e % 2 < keys ? gate : 0.0F;
  });
}

/// A query's values at a position between two table rows. The last row has a successor in memory,
/// too, so that both are read without asking.
struct Interpolated {
  float value, slope;
  __device__ Interpolated(const float* values, float position) {
    const int below = static_cast<int>(position);
    const float share = position - static_cast<float>(below);
    const float low = values[below], high = values[below + 1];
    slope = share > 0.0F ? high - low : 0.0F;
    value = fmaf(share, slope, low);
  }
};

}  // namespace sape2::kernels::cuda::cope
