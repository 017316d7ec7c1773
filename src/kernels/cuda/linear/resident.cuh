#pragma once

#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/warpgroup_registers.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/linear/epilogues.cuh"
#include "kernels/cuda/linear/fits.h"
#include "kernels/cuda/linear/products.cuh"

#include <cstdint>

/// Products of a small depth: a block keeps its columns of the second operand, the weights, in
/// shared memory and walks over rows. Its consumers, warpgroups with 64 rows each, take turns:
/// while one computes its epilogue, the tensor cores work for the other.
namespace sape2::kernels::cuda::linear {

/// `Columns` of a block; `Turned`: the rows of the weights run across the depth.
template <int Columns, bool Turned_>
struct ResidentPlan {
  static constexpr int kColumns = Columns;
  static constexpr bool kTurned = Turned_;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kWarps = 4 * kConsumers;
  static constexpr int kWeightBytes = kColumns * kChunk * 2;  // of a chunk
  static constexpr int kRegistersAtFirst = 168, kRegisters = 232, kProducerRegisters = 40;
};
static_assert(kAlignment == kSharedAlignment);

/// How blocks share a product: each group of `blocks` blocks has Plan::kColumns of its columns.
struct ResidentSizes {
  int tiles;   // of rows
  int chunks;  // of the depth
  int blocks;  // of a group
};

template <class EpilogueParams>
struct ResidentParams {
  CUtensorMap rows, weights;
  ResidentSizes sizes;
  EpilogueParams epilogue;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <class Plan>
struct ResidentSmem {
  unsigned char *weights, *stages, *slots;
  Mbarrier *weights_arrived, *full, *empty, *turn, *loaded;

  __device__ ResidentSmem(unsigned char* shared, int chunks) {
    weights = aligned_shared(shared);
    stages = weights + chunks * Plan::kWeightBytes;
    slots = stages + kStages * kStageBytes;
    weights_arrived = reinterpret_cast<Mbarrier*>(slots + Plan::kWarps * kSlots * kSlotBytes);
    full = weights_arrived + kMostChunks;
    empty = full + kStages;
    turn = empty + kStages;
    loaded = turn + kConsumers;
  }
  __device__ void init_barriers() const {
    for (int i = 0; i < kMostChunks; ++i) mbarrier_init(weights_arrived + i);
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + i);
      mbarrier_init(empty + i, 4);  // the warps of the consumer whose chunk it was
    }
    for (int i = 0; i < kConsumers; ++i) mbarrier_init(turn + i, 4);  // the one's before it
    for (int i = 0; i < Plan::kWarps; ++i) mbarrier_init(loaded + i);
  }
};

/// Which tiles of rows a block's consumers take: turn after turn, one each.
struct ResidentTurns {
  int group, member, tiles, step;

  __device__ explicit ResidentTurns(const ResidentSizes& sizes)
      : group(blockIdx.x / sizes.blocks),
        member(blockIdx.x % sizes.blocks),
        tiles(sizes.tiles),
        step(sizes.blocks * kConsumers) {}
  __device__ int tile(int turn, int consumer) const {
    return turn * step + member * kConsumers + consumer;
  }
};

/// Loads a chunk of the block's columns of the second operand.
template <class Plan>
__device__ void load_weights(const CUtensorMap& weights, const ResidentSmem<Plan>& shared,
                             int chunk, int column) {
  Mbarrier* const barrier = shared.weights_arrived + chunk;
  unsigned char* const to = shared.weights + chunk * Plan::kWeightBytes;
  mbarrier_expect_tx(barrier, Plan::kWeightBytes);
  if constexpr (Plan::kTurned) {
#pragma unroll
    for (int panel = 0; panel < Plan::kColumns / kPanel; ++panel)
      tma_load(to + panel * kChunk * 128, weights,
               {column + panel * kPanel, chunk * kChunk, 0, 0, 0}, barrier);
  } else {
    tma_load(to, weights, {chunk * kChunk, column, 0, 0, 0}, barrier);
  }
}

/// One thread loads everything that the consumers wait for.
template <class Plan, class Params>
__device__ void produce(const Params& p, const ResidentSmem<Plan>& shared) {
  const ResidentTurns turns(p.sizes);
  unsigned sequence = 0;
  for (int turn = 0; turns.tile(turn, 0) < turns.tiles; ++turn) {
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      const int tile = turns.tile(turn, consumer);
      if (tile >= turns.tiles) return;
#pragma unroll 1
      for (int chunk = 0; chunk < p.sizes.chunks; ++chunk, ++sequence) {
        if (turn == 0 && consumer == 0)
          load_weights<Plan>(p.weights, shared, chunk, turns.group * Plan::kColumns);
        const unsigned stage = sequence % kStages, round = sequence / kStages;
        if (round > 0) mbarrier_wait(shared.empty + stage, round - 1);
        mbarrier_expect_tx(shared.full + stage, kStageBytes);
        tma_load(shared.stages + stage * kStageBytes, p.rows,
                 {chunk * kChunk, tile * kRows, 0, 0, 0}, shared.full + stage);
      }
    }
  }
}

/// Lets consumers wait for the ring's barriers in the order of their chunks. A barrier's phase is
/// one bit, so a consumer that waited earlier could mistake an old round for its own.
struct RingOrder {
  Mbarrier* turns;
  int consumer;

  __device__ void wait(int turn) const {
    if (turn > 0 || consumer > 0) mbarrier_wait(turns + consumer, consumer > 0 ? turn : turn - 1);
  }
  /// Called by one thread of each warp when its last chunk is there.
  __device__ void pass_on() const { mbarrier_arrive(turns + (consumer + 1) % kConsumers); }
};

/// A consumer's tiles. Chunks of rows are numbered (`sequence`) in the order they are loaded in.
template <class Plan, template <int, int> class Epilogue, class Params>
__device__ void consume(const Params& p, const ResidentSmem<Plan>& shared, int consumer) {
  constexpr int kN8 = Plan::kColumns / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const ResidentTurns turns(p.sizes);
  const int column = turns.group * Plan::kColumns, chunks = p.sizes.chunks;
  Epilogue<kN8, kSlots> epilogue(p.epilogue, shared.slots + warp * kSlots * kSlotBytes,
                                 shared.loaded + warp);
  const std::uint64_t weights =
      descriptor(shared_address(shared.weights), Plan::kTurned ? kChunk * 128 : 16);
  const std::uint64_t stages = descriptor(shared_address(shared.stages));
  const RingOrder order{shared.turn, consumer};
  for (int turn = 0, tile; (tile = turns.tile(turn, consumer)) < turns.tiles; ++turn) {
    const int row = tile * kRows + warp % 4 * kWarpRows;
    epilogue.begin(row, column);
    unsigned sequence = (turn * kConsumers + consumer) * chunks;
    float c[kN8][4];
    order.wait(turn);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, ++sequence) {
      const unsigned stage = sequence % kStages;
      if (turn == 0) mbarrier_wait(shared.weights_arrived + chunk, 0);
      mbarrier_wait(shared.full + stage, sequence / kStages);
      if (lane == 0 && chunk + 1 == chunks) order.pass_on();
      wgmma_fence();
      start_chunk<false, Plan::kTurned>(c, stages + stage * (kStageBytes / 16),
                                        weights + chunk * (Plan::kWeightBytes / 16), chunk > 0);
      wgmma_commit();
      if (chunk == 0) continue;
      wgmma_wait<1>();
      if (lane == 0) mbarrier_arrive(shared.empty + (sequence - 1) % kStages);
    }
    wgmma_wait<0>();
    fence_accumulators(c);
    if (lane == 0) mbarrier_arrive(shared.empty + (sequence - 1) % kStages);
    epilogue.finish(c, row, column);
  }
  epilogue.end();
  if constexpr (Epilogue<kN8, kSlots>::kSums) {
    asm volatile("bar.sync 1, %0;" ::"n"(Plan::kWarps * 32) : "memory");
    epilogue.add_sums(shared.slots, Plan::kWarps, turns.member, column);
  }
}

#endif

/// Which tiles a block has: ResidentTurns.
template <class Plan, template <int, int> class Epilogue, class Params>
__global__ void __launch_bounds__(Plan::kThreads, 1)
    resident_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char memory[];
  const ResidentSmem<Plan> shared(memory, p.sizes.chunks);
  if (threadIdx.x == 0) {
    prefetch_tensormaps(p.rows, p.weights);
    shared.init_barriers();
    fence_barrier_init();
  }
  __syncthreads();
  pdl_wait();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (warpgroup == kConsumers) {
    change_registers<Plan::kRegistersAtFirst, Plan::kProducerRegisters>();
    if (threadIdx.x == kConsumers * 128) produce<Plan>(p, shared);
  } else {
    change_registers<Plan::kRegistersAtFirst, Plan::kRegisters>();
    consume<Plan, Epilogue>(p, shared, warpgroup);
  }
#endif
}

}  // namespace sape2::kernels::cuda::linear
