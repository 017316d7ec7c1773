#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Hopper's clusters: neighbouring blocks that run at the same time and write into each other's
/// shared memory. Elsewhere every block is a cluster of its own.
namespace sape2::kernels::cuda {

struct Cluster {
  unsigned size = 1, rank = 0;
  unsigned index;  // among the clusters

  __device__ Cluster() : index(blockIdx.x) {
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
#endif
  }

  /// All threads of the cluster, and so of the block, arrive before one goes on that waits. Says
  /// nothing of what they wrote, so nobody waits for his writes to arrive; what they read they
  /// have.
  __device__ void arrive() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }
  __device__ void wait() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }
};

/// Writes four numbers to the place that another block of the cluster has where this one has
/// `here`; its `barrier`, likewise, counts the bytes.
__device__ inline void st_async([[maybe_unused]] const float (&numbers)[4],
                                [[maybe_unused]] const void* here,
                                [[maybe_unused]] Mbarrier* barrier,
                                [[maybe_unused]] unsigned other) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .u32 place, counter;\n"
      "mapa.shared::cluster.u32 place, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [place], {%3, %4, %5, %6}, "
      "[counter];}" ::"r"(shared_address(here)),
      "r"(shared_address(barrier)), "r"(other), "f"(numbers[0]), "f"(numbers[1]), "f"(numbers[2]),
      "f"(numbers[3])
      : "memory");
#endif
}

}  // namespace sape2::kernels::cuda
