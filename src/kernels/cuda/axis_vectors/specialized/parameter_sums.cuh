#pragma once

#include "kernels/cuda/arch/cluster.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"

/// Sums that stage 1's backward pass makes over its blocks, where sizes are known to the compiler.
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// The table's gradient and two numbers of the gates, added up over a block or a pair of blocks.
/// Each warp has 16 rows of every kRows of the table. Of two blocks each sends the other the half
/// of its columns that it does not store itself, straight from registers; the barrier that counts
/// what has come is all the two have to wait for.
template <class Lines>
struct ParameterSums {
  static constexpr int kColumns = kHeadSize / 8, kHalf = kColumns / 2;
  static constexpr int kRounds = (Lines::kTableRows + Lines::kRows - 1) / Lines::kRows;
  static constexpr int kBytes = kRounds * Lines::kWarps * kHalf * 32 * 16;
  using Part = float[kColumns][4];
  using Parts = Part[kRounds];

  /// What is used for nothing else.
  struct alignas(16) Own {
    float4 gates[2][Lines::kWarps];  // of both blocks' warps, in the first block
    Mbarrier arrived;
  };

  /// Where the table's sums go: `positions` rows, of which row `begin` of the parts is the first.
  struct Table {
    float* data;  // null: not wanted
    int begin, positions;
    bool add;  // to what is there
  };

  Cluster cluster;
  float4* buffer;  // kBytes, free from release_buffer until store is over
  Own* own;
  int phase = 0;

  __device__ ParameterSums(unsigned char* shared, unsigned char* own_shared)
      : buffer(reinterpret_cast<float4*>(shared)), own(reinterpret_cast<Own*>(own_shared)) {}

  /// Before the block's first barrier.
  __device__ void prepare() const {
    if (threadIdx.x != 0) return;
    mbarrier_init(&own->arrived);
    fence_barrier_init();
  }

  /// The block's entry among the pairs', or blocks', partial sums.
  __device__ unsigned entry() const { return cluster.index; }

  /// All threads call it before every store, as soon as they read there no more.
  __device__ void release_buffer() const {
    if (cluster.size > 1) cluster.arrive();
  }

  /// All threads call it. `gates` are summed up too and stored as entries, unless null: once, at
  /// the end.
  __device__ void store(const Parts& parts, const Table& table, float2 gates, float* scales,
                        float* offsets) {
    const bool tables = table.data != nullptr, any_gates = scales != nullptr || offsets != nullptr;
    const bool pair = cluster.size > 1;
    if (pair) {
      cluster.wait();
      if (threadIdx.x == 0) {
        const bool receives_gates = any_gates && cluster.rank == 0;
        mbarrier_expect_tx(&own->arrived,
                           (tables ? kBytes : 0) + (receives_gates ? sizeof(own->gates) : 0));
      }
      if (tables && cluster.rank == 0) send_columns<kHalf>(parts);
      if (tables && cluster.rank == 1) send_columns<0>(parts);
    }
    if (any_gates) {
      const float2 sum = over_warp(gates);
      float4& place = own->gates[cluster.rank][threadIdx.x / 32];
      if (threadIdx.x % 32 == 0 && pair) st_async({sum.x, sum.y}, &place, &own->arrived, 0);
      if (threadIdx.x % 32 == 0 && !pair) place = make_float4(sum.x, sum.y, 0.0F, 0.0F);
      if (!pair) __syncthreads();
    }
    if (pair) mbarrier_wait(&own->arrived, phase++);
    if (tables && cluster.rank == 0) store_columns<0>(parts, table, pair);
    if (tables && (cluster.rank == 1 || !pair)) store_columns<kHalf>(parts, table, pair);
    if (any_gates && cluster.rank == 0 && threadIdx.x == 0) {
      float2 sum = of_block(0);
      if (pair) {
        const float2 other = of_block(1);
        sum.x += other.x;
        sum.y += other.y;
      }
      if (scales != nullptr) scales[entry()] = sum.x;
      if (offsets != nullptr) offsets[entry()] = sum.y;
    }
  }

 private:
  __device__ float4* place(int round, int column) const {
    return buffer + (round * kHalf + column) * Lines::kThreads + threadIdx.x;
  }

  /// In a fixed order, as all that follows.
  __device__ static float2 over_warp(float2 x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      x.x += __shfl_xor_sync(0xffffffffu, x.x, step);
      x.y += __shfl_xor_sync(0xffffffffu, x.y, step);
    }
    return x;
  }
  __device__ float2 of_block(int rank) const {
    float2 sum = make_float2(0.0F, 0.0F);
#pragma unroll
    for (const float4& warp : own->gates[rank]) {
      sum.x += warp.x;
      sum.y += warp.y;
    }
    return sum;
  }

  /// Half the columns, from `First` on, to the other block.
  template <int First>
  __device__ void send_columns(const Parts& parts) const {
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int column = 0; column < kHalf; ++column)
        st_async(parts[round][First + column], place(round, column), &own->arrived,
                 cluster.rank ^ 1);
  }

  /// Half the columns, and what has come from the other block, to memory.
  template <int First>
  __device__ void store_columns(const Parts& parts, const Table& table, bool pair) const {
    const Lane lane;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int row = (round * Lines::kWarps + int(threadIdx.x) / 32) * 16 - table.begin + lane.g;
      float4 more[kHalf] = {};
      if (pair) {
#pragma unroll
        for (int column = 0; column < kHalf; ++column) more[column] = *place(round, column);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (unsigned(row + 8 * half) >= unsigned(table.positions)) continue;
        auto* const to = reinterpret_cast<float2*>(table.data + (row + 8 * half) * kHeadSize +
                                                   First * 8 + 2 * lane.t);
        float2 sums[kHalf];
#pragma unroll
        for (int column = 0; column < kHalf; ++column) {
          const auto& part = parts[round][First + column];
          const auto& x = more[column];
          sums[column] = make_float2(part[2 * half] + (half ? x.z : x.x),
                                     part[2 * half + 1] + (half ? x.w : x.y));
        }
        if (table.add) {
#pragma unroll
          for (int column = 0; column < kHalf; ++column) {
            sums[column].x += to[4 * column].x;
            sums[column].y += to[4 * column].y;
          }
        }
#pragma unroll
        for (int column = 0; column < kHalf; ++column) to[4 * column] = sums[column];
      }
    }
  }
};

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
