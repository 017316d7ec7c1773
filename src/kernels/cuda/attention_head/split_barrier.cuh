#pragma once

#include "kernels/cuda/arch/tma.cuh"

namespace sape2::kernels::cuda::head {

/// A block's barrier in two halves: what a warp does in between waits for nobody. Before Hopper,
/// and not `Split`, it is an ordinary one.
template <bool Split>
struct SplitBarrier {
  Mbarrier* barrier;  // in shared memory
  int phase = 0;

  /// The block's barrier must follow.
  __device__ explicit SplitBarrier(void* place) : barrier(static_cast<Mbarrier*>(place)) {
    if (Split && threadIdx.x == 0) {
      mbarrier_init(barrier, blockDim.x);
      fence_barrier_init();
    }
  }
  /// This warp has written, and read, what others wait for. Every lane says so for itself: that
  /// takes no longer than one of them would for all, and tools that look for races understand it.
  __device__ void arrive() const {
    if constexpr (!Split) return;
    __syncwarp();  // products need whole warps
    cuda::mbarrier_arrive(barrier);
  }
  __device__ void wait() {
#if __CUDA_ARCH__ >= 900
    if constexpr (Split) return mbarrier_wait(barrier, phase++);
#endif
    __syncthreads();
  }
};

}  // namespace sape2::kernels::cuda::head
