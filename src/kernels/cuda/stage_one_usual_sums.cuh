#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/stage_one_usual.cuh"

/// Sums that stage 1's way back makes over its blocks, where sizes are known to the compiler.
namespace sape2::kernels::cuda {

/// Sums of the table's gradient over the blocks of a cluster, by way of shared memory: each warp
/// has 16 rows of every kRows.
template <class Lines>
struct UsualTableSums {
  static constexpr int kRounds = (Lines::kTableRows + Lines::kRows - 1) / Lines::kRows;
  static constexpr int kCount = kRounds * Lines::kRows;
  // Numbers; spares the banks where there is room for it.
  static constexpr int kPitch = kUsualHead + (Lines::kLong == 48 ? 0 : 8);
  static constexpr int kQuads = kUsualHead / 4;
  static constexpr int kBytes = kCount * kPitch * 4;
  using Part = float[kUsualHead / 8][4];
  float* rows;

  __device__ explicit UsualTableSums(unsigned char* shared)
      : rows(reinterpret_cast<float*>(shared)) {}

  /// A warp's 16 rows from `first` on.
  __device__ void put(const Part& c, int first) const {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int piece = 0; piece < kUsualHead / 8; ++piece)
        *reinterpret_cast<float2*>(rows + (first + lane.g + 8 * half) * kPitch + piece * 8 +
                                   2 * lane.t) =
            make_float2(c[piece][2 * half], c[piece][2 * half + 1]);
  }
  /// This block's share of the rows to a table of `positions` rows, or added to it; row `begin` is
  /// the table's first one.
  __device__ void store(float* table, int begin, int positions, bool add,
                        const Cluster& cluster) const {
    const int share = kCount / cluster.size * kQuads;
#pragma unroll 4
    for (int i = threadIdx.x; i < share; i += Lines::kThreads) {
      const int row = (cluster.rank * share + i) / kQuads, quad = i % kQuads;
      if (unsigned(row - begin) >= unsigned(positions)) continue;
      float4 sum = cluster.sum(reinterpret_cast<const float4*>(rows + row * kPitch) + quad);
      float4* const to =
          reinterpret_cast<float4*>(table + std::int64_t(row - begin) * kUsualHead) + quad;
      if (add) {
        const float4 there = *to;
        sum.x += there.x;
        sum.y += there.y;
        sum.z += there.z;
        sum.w += there.w;
      }
      *to = sum;
    }
  }
};

}  // namespace sape2::kernels::cuda
