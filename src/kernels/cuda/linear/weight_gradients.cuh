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

/// Products dyᵀ · x of several layers at once, long along their rows: both operands pass through
/// shared memory, chunk by chunk. Two consumers, warpgroups with 64 rows each, share a tile of 128.
/// One layer alone has too few tiles for a GPU, and splitting it would leave parts to be added.
namespace sape2::kernels::cuda::linear {

template <int Columns, int Slots_>
struct GradientPlan {
  static constexpr int kColumns = Columns, kSlots = Slots_, kStages = 4;
  static constexpr int kThreads = 3 * 128, kWarps = 8;
  static constexpr int kRowBytes = kTileRows * kChunk * 2;
  static constexpr int kStageBytes = kRowBytes + kColumns * kChunk * 2;
  static constexpr int kSharedBytes =
      kSharedAlignment + kStages * kStageBytes + kWarps * kSlots * kSlotBytes + 2 * kStages * 8;
};

struct GradientJob {
  CUtensorMap dy, x;
  int chunks, column_tiles;
  int first;  // of its tiles among those of all jobs
  RoundedParams epilogue;
};

struct GradientParams {
  int jobs, tiles;
  GradientJob job[kMostWeightGradients];
};

struct GradientTile {
  int job, row, column;

  template <class Plan>
  __device__ static GradientTile of(const GradientParams& p, int tile) {
    int job = 0;
    while (job + 1 < p.jobs && p.job[job + 1].first <= tile) ++job;
    const int place = tile - p.job[job].first, across = p.job[job].column_tiles;
    return {job, place / across * kTileRows, place % across * Plan::kColumns};
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <class Plan>
struct GradientSmem {
  unsigned char *stages, *slots;
  Mbarrier *full, *empty;

  __device__ explicit GradientSmem(unsigned char* shared) {
    stages = aligned_shared(shared);
    slots = stages + Plan::kStages * Plan::kStageBytes;
    full = reinterpret_cast<Mbarrier*>(slots + Plan::kWarps * Plan::kSlots * kSlotBytes);
    empty = full + Plan::kStages;
  }
  __device__ void init_barriers() const {
    for (int i = 0; i < Plan::kStages; ++i) {
      mbarrier_init(full + i);
      mbarrier_init(empty + i, Plan::kWarps);
    }
  }
};

/// Loads a chunk of a tile's operands: panels of 64 columns of dy, then of x.
template <class Plan>
__device__ void load_gradient_chunk(unsigned char* to, const GradientJob& job,
                                    const GradientTile& tile, int chunk, Mbarrier* full) {
  constexpr int kPanelBytes = kChunk * 128;
  mbarrier_expect_tx(full, Plan::kStageBytes);
#pragma unroll
  for (int panel = 0; panel < kTileRows / kPanel; ++panel)
    tma_load(to + panel * kPanelBytes, job.dy, {tile.row + panel * kPanel, chunk * kChunk, 0, 0, 0},
             full);
#pragma unroll
  for (int panel = 0; panel < Plan::kColumns / kPanel; ++panel)
    tma_load(to + Plan::kRowBytes + panel * kPanelBytes, job.x,
             {tile.column + panel * kPanel, chunk * kChunk, 0, 0, 0}, full);
}

template <class Plan>
__device__ void load_gradients(const GradientParams& p, const GradientSmem<Plan>& shared) {
  unsigned sequence = 0;
  for (int number = blockIdx.x; number < p.tiles; number += gridDim.x) {
    const auto tile = GradientTile::of<Plan>(p, number);
    const GradientJob& job = p.job[tile.job];
#pragma unroll 1
    for (int chunk = 0; chunk < job.chunks; ++chunk, ++sequence) {
      const unsigned stage = sequence % Plan::kStages, round = sequence / Plan::kStages;
      if (round > 0) mbarrier_wait(shared.empty + stage, round - 1);
      load_gradient_chunk<Plan>(shared.stages + stage * Plan::kStageBytes, job, tile, chunk,
                                shared.full + stage);
    }
  }
}

template <class Plan>
__device__ void multiply_gradients(const GradientParams& p, const GradientSmem<Plan>& shared) {
  constexpr int kN8 = Plan::kColumns / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint64_t dy =
      descriptor(shared_address(shared.stages) + warp / 4 * (Plan::kRowBytes / 2));
  const std::uint64_t x = descriptor(shared_address(shared.stages) + Plan::kRowBytes, kChunk * 128);
  unsigned sequence = 0;
  for (int number = blockIdx.x; number < p.tiles; number += gridDim.x) {
    const auto tile = GradientTile::of<Plan>(p, number);
    const GradientJob& job = p.job[tile.job];
    float c[kN8][4];
#pragma unroll 1
    for (int chunk = 0; chunk < job.chunks; ++chunk, ++sequence) {
      const unsigned stage = sequence % Plan::kStages;
      const std::uint64_t further = stage * (Plan::kStageBytes / 16);
      mbarrier_wait(shared.full + stage, sequence / Plan::kStages);
      wgmma_fence();
      start_chunk<true, true>(c, dy + further, x + further, chunk > 0);
      wgmma_commit();
      if (chunk == 0) continue;
      wgmma_wait<1>();
      if (lane == 0) mbarrier_arrive(shared.empty + (sequence - 1) % Plan::kStages);
    }
    wgmma_wait<0>();
    fence_accumulators(c);
    if (lane == 0) mbarrier_arrive(shared.empty + (sequence - 1) % Plan::kStages);
    Rounded<kN8, Plan::kSlots> epilogue(job.epilogue,
                                        shared.slots + warp * Plan::kSlots * kSlotBytes, nullptr);
    epilogue.finish(c, tile.row + warp * kWarpRows, tile.column);
    epilogue.end();
  }
}

#endif

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, 1)
    weight_gradients_kernel(const __grid_constant__ GradientParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char memory[];
  const GradientSmem<Plan> shared(memory);
  if (threadIdx.x == 0) {
    shared.init_barriers();
    fence_barrier_init();
  }
  __syncthreads();
  pdl_wait();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (warpgroup == 2) {
    change_registers<168, 40>();
    if (threadIdx.x == 256) load_gradients<Plan>(p, shared);
  } else {
    change_registers<168, 232>();
    multiply_gradients<Plan>(p, shared);
  }
#endif
}

}  // namespace sape2::kernels::cuda::linear
