#pragma once

#include "kernels/cuda/block_sum.cuh"

#include <cuda_runtime.h>

#include <cstdint>

/// Hopper's clusters: neighbouring blocks that run at the same time and read each other's shared
/// memory. Elsewhere every block is a cluster of its own.
namespace sape2::kernels::cuda {

struct Cluster {
  static constexpr int kMost = 2;
  unsigned size = 1, rank = 0;

  __device__ Cluster() {
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  }

  /// A barrier for all threads of the cluster, and so of the block. What they wrote before is seen
  /// behind it.
  __device__ void synchronize() const {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
#else
    __syncthreads();
#endif
  }

  /// What block `other` of the cluster has at the place where this one has `here`.
  __device__ float4 read(const float4* here, [[maybe_unused]] unsigned other) const {
#if __CUDA_ARCH__ >= 900
    const auto own = static_cast<std::uint32_t>(__cvta_generic_to_shared(here));
    std::uint32_t there;
    float4 x;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(other));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(there));
    return x;
#else
    return *here;
#endif
  }

  /// The sum over the blocks of what they have there, the same whoever asks.
  __device__ float4 sum(const float4* here) const {
    float4 parts[kMost];
#pragma unroll
    for (int other = 0; other < kMost; ++other)
      parts[other] = other < size ? read(here, other) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    float4 all = parts[0];
#pragma unroll
    for (int other = 1; other < kMost; ++other) {
      all.x += parts[other].x;
      all.y += parts[other].y;
      all.z += parts[other].z;
      all.w += parts[other].w;
    }
    return all;
  }
};

/// Two numbers summed over a cluster. `shared`, aligned to 16 bytes, has kPlaces of them free.
struct ClusterSums {
  static constexpr int kPlaces = 4 + 32;  // what others read, and one for each warp
  float* shared;

  /// This block's sums; the cluster must synchronize before they are stored.
  __device__ void put(float first, float second) const {
    float* const warps = shared + 4;
    const float4 own = make_float4(block_sum(first, warps), block_sum(second, warps), 0.0F, 0.0F);
    if (threadIdx.x == 0) *reinterpret_cast<float4*>(shared) = own;
  }
  /// As the cluster's entries in arrays of partial sums; null: not wanted.
  __device__ void store(float* first_sums, float* second_sums, const Cluster& cluster) const {
    if (cluster.rank != 0 || threadIdx.x != 0) return;
    const float4 all = cluster.sum(reinterpret_cast<const float4*>(shared));
    const unsigned index = blockIdx.x / cluster.size;
    if (first_sums != nullptr) first_sums[index] = all.x;
    if (second_sums != nullptr) second_sums[index] = all.y;
  }
};

/// All of it.
__device__ inline void store_cluster_sums(float first, float* first_sums, float second,
                                          float* second_sums, float* shared,
                                          const Cluster& cluster) {
  if (first_sums == nullptr && second_sums == nullptr) return;
  const ClusterSums sums{shared};
  sums.put(first, second);
  cluster.synchronize();
  sums.store(first_sums, second_sums, cluster);
  cluster.synchronize();  // nobody leaves while others read
}

}  // namespace sape2::kernels::cuda
