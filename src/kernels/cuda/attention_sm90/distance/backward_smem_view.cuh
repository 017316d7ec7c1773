#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_fragments.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Aligned for swizzled tiles, so that all places are known to the compiler.
extern __shared__ __align__(kSharedAlignment) unsigned char pairs_memory[];

/// What of DistanceBwdSmem lies where: vectors and matrices, numbers, barriers.
template <class T, int Steps>
struct DistanceBwdSmemView {
  using Smem = DistanceBwdSmem<Steps>;
  using Place = PairTile<Steps>;

  /// What score warpgroups must know of the block's rows; they come with these.
  struct RowsPlace {
    int first, head;  // first: -1 where there are no more rows
  };
  __device__ static RowsPlace* place() {
    return reinterpret_cast<RowsPlace*>(pairs_memory + Smem::kPlace);
  }
  __device__ static unsigned char* own(int part) { return pairs_memory + Smem::own(part); }
  __device__ static unsigned char* other(const Place& tile, int part) {
    return pairs_memory + Smem::other(part) + tile.offset(part);
  }
  /// Two neighbouring entries of a vector of the block's, as they were swizzled.
  __device__ static std::uint32_t own_entries(int part, int row, int entry) {
    constexpr int kChunks = Smem::kVectorRow / 16;
    const int chunk = (entry / 8 ^ row * kChunks / 8) % kChunks;
    return *reinterpret_cast<const std::uint32_t*>(own(part) + row * Smem::kVectorRow + chunk * 16 +
                                                   entry % 8 * 2);
  }

  __device__ static float* numbers_at(int stage) {
    return reinterpret_cast<float*>(pairs_memory + Smem::kNumbers + stage * Smem::kNumberBytes);
  }
  /// lse (base 2), behind them dout · out.
  __device__ static float* lse_delta(const Place& tile) { return numbers_at(tile.rest.stage()); }
  __device__ static float* own_lse_delta() { return numbers_at(Smem::kRestStages); }
  /// Squared lengths of x, behind them of y, two tiles on.
  __device__ static float* next_lengths(const Place& tile) {
    return lse_delta(tile) + 2 * kPairColumns;
  }
  __device__ static float* own_lengths() { return own_lse_delta() + 2 * kPairColumns; }
  /// Of the first rows' tile 0 or 1.
  __device__ static float* first_lengths(int tile) {
    return numbers_at(Smem::kRestStages + 1) + tile * 2 * kPairColumns;
  }
  __device__ static float* scratch() {
    return reinterpret_cast<float*>(pairs_memory + Smem::kScratch);
  }
  __device__ static Mbarrier* first_full(int stage) {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kFirstFull) + stage;
  }
  __device__ static Mbarrier* rest_full(int stage) {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kRestFull) + stage;
  }
  __device__ static Mbarrier* rows_full(int half) {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kRowsFull) + half;
  }
  /// By score warpgroups, for the last time.
  __device__ static Mbarrier* rows_empty(int half) {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kRowsEmpty) + half;
  }
  /// By score warpgroups, each thread for itself.
  __device__ static Mbarrier* place_empty() {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kPlaceEmpty);
  }
  /// `part`: 1 for ω where it comes behind the rest.
  __device__ static Mbarrier* items_full(int part) {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kItemsFull) + part;
  }
  /// `which`: a tile's parity; 2 for its queries' gradients alone.
  __device__ static Mbarrier* items_empty(int which) {
    return reinterpret_cast<Mbarrier*>(pairs_memory + Smem::kItemsEmpty) + which;
  }

  /// By all threads, before anything is published.
  __device__ static void fill_ones() {
    for (int i = threadIdx.x; i < Smem::kOnesBytes / 4; i += kPairThreads)
      reinterpret_cast<std::uint32_t*>(pairs_memory + Smem::kOnes)[i] = pack<T>(1.0F, 1.0F);
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
