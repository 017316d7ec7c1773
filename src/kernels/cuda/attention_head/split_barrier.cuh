#pragma once

#include "kernels/cuda/arch/tma.cuh"

namespace sape2::kernels::cuda::head {

/// A block's barrier in two halves: what a warp does in between waits for nobody. Before Hopper,
/// and not `InHalves`, it is an ordinary one.
template <bool InHalves>
struct Meeting {
  CopyBarrier* barrier;  // in shared memory
  int turn = 0;

  /// The block's barrier must follow.
  __device__ explicit Meeting(void* place) : barrier(static_cast<CopyBarrier*>(place)) {
    if (InHalves && threadIdx.x == 0) {
      prepare_barrier(barrier, blockDim.x);
      publish_to_copy_engine();
    }
  }
  /// This warp has written, and read, what others wait for. Every lane says so for itself: that
  /// takes no longer than one of them would for all, and tools that look for races understand it.
  __device__ void arrive() const {
    if constexpr (!InHalves) return;
    __syncwarp();  // products need whole warps
    cuda::arrive(barrier);
  }
  __device__ void wait() {
#if __CUDA_ARCH__ >= 900
    if constexpr (InHalves) return wait_for_boxes(barrier, turn++);
#endif
    __syncthreads();
  }
};

}  // namespace sape2::kernels::cuda::head
