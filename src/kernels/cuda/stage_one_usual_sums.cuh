#pragma once

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/stage_one_usual.cuh"

/// Sums that stage 1's way back makes over its blocks, where sizes are known to the compiler.
namespace sape2::kernels::cuda {

/// The table's gradient and two numbers of the gates, added up over a block or a pair of blocks.
/// Each warp has 16 rows of every kRows of the table. Of two blocks each sends the other what it
/// does not store itself, straight from registers; the barrier that counts what has come is all the
/// two have to wait for.
template <class Lines>
struct UsualSums {
  static constexpr int kColumns = kUsualHead / 8;
  static constexpr int kRounds = (Lines::kTableRows + Lines::kRows - 1) / Lines::kRows;
  static constexpr int kShare = kRounds * Lines::kWarps / 2;  // parts that one of two blocks stores
  static_assert(kRounds * Lines::kWarps % 2 == 0);
  static constexpr int kPartBytes = 32 * kColumns * 16;
  static constexpr int kBytes = kShare * kPartBytes + 16 + Lines::kWarps * 4;
  using Part = float[kColumns][4];

  Cluster cluster;
  unsigned char* room;   // kBytes, free while store runs
  CopyBarrier* arrived;  // prepared, and used for nothing else
  int turn = 0;

  __device__ UsualSums(unsigned char* shared, CopyBarrier* barrier)
      : room(shared), arrived(barrier) {}

  /// Before anything else.
  __device__ void prepare() const {
    if (threadIdx.x != 0) return;
    prepare_barrier(arrived);
    publish_to_copy_engine();
  }

  /// The block's entry among the pairs', or blocks', partial sums.
  __device__ unsigned entry() const { return blockIdx.x / cluster.size; }

  /// All threads call it. `table`: `positions` rows, of which row `begin` of the parts is the
  /// first; null: not wanted; `add`: to what is there. `scale` and `offset` are summed up over the
  /// block too and stored as entries, unless null.
  __device__ void store(const Part (&parts)[kRounds], float* table, int begin, int positions,
                        bool add, float scale, float* scales, float offset, float* offsets) {
    const bool tables = table != nullptr, gates = scales != nullptr || offsets != nullptr;
    if (!tables && !gates) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float4* const own_gates = reinterpret_cast<float4*>(room + kShare * kPartBytes);
    float gate[4] = {};
    if (gates) {
      gate[0] = block_sum(scale, reinterpret_cast<float*>(own_gates + 1));
      gate[1] = block_sum(offset, reinterpret_cast<float*>(own_gates + 1));
    }
    const auto place = [&](int part, int column) {
      return reinterpret_cast<float4*>(room + (part % kShare) * kPartBytes) + column * 32 + lane;
    };
    const bool pair = cluster.size > 1;
    const unsigned other = cluster.rank ^ 1;
    if (pair) {
      cluster.meet();  // nobody reads there any more
      if (threadIdx.x == 0)
        expect_bytes(arrived,
                     (tables ? kShare * kPartBytes : 0) + (gates && cluster.rank == 0 ? 16 : 0));
      if (tables) {
#pragma unroll
        for (int round = 0; round < kRounds; ++round) {
          const int part = round * Lines::kWarps + warp;
          if (part / kShare != other) continue;
#pragma unroll
          for (int column = 0; column < kColumns; ++column)
            send(parts[round][column], place(part, column), arrived, other);
        }
      }
      if (gates && cluster.rank == 1 && threadIdx.x == 0) send(gate, own_gates, arrived, other);
      wait_for_boxes(arrived, turn++);
    }
    if (tables) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        const int part = round * Lines::kWarps + warp;
        if (pair && part / kShare != cluster.rank) continue;
        store_part(parts[round], part * 16 - begin, table, positions, add,
                   [&](int column) { return pair ? *place(part, column) : float4{}; });
      }
    }
    if (gates && cluster.rank == 0 && threadIdx.x == 0) {
      const float4 more = pair ? *own_gates : float4{};
      if (scales != nullptr) scales[entry()] = gate[0] + more.x;
      if (offsets != nullptr) offsets[entry()] = gate[1] + more.y;
    }
  }

 private:
  /// One part and what has come from the other block to rows `first` … of a table.
  template <class More>
  __device__ static void store_part(const Part& part, int first, float* table, int positions,
                                    bool add, More more) {
    const Lane lane;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const float4 x = more(column);
      const float2 sums[2] = {make_float2(part[column][0] + x.x, part[column][1] + x.y),
                              make_float2(part[column][2] + x.z, part[column][3] + x.w)};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + lane.g + 8 * half;
        if (unsigned(row) >= unsigned(positions)) continue;
        float2* const to =
            reinterpret_cast<float2*>(table + row * kUsualHead + column * 8 + 2 * lane.t);
        const float2 there = add ? *to : make_float2(0.0F, 0.0F);
        *to = make_float2(there.x + sums[half].x, there.y + sums[half].y);
      }
    }
  }
};

}  // namespace sape2::kernels::cuda
