#pragma once

#include "kernels/cuda/common/tile.cuh"

#include <cuda.h>

/// Boxes of tensors brought into shared memory by TMA, announced by barriers that
/// count bytes. Elsewhere these functions do nothing.
namespace sape2::kernels::cuda {

using Mbarrier = std::uint64_t;

__device__ inline void mbarrier_init(Mbarrier* barrier, int arrivals = 1) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
#endif
}

/// True for one lane of a whole warp.
__device__ inline bool elect_one() {
  std::uint32_t chosen = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;}\n"
      : "=r"(chosen));
#endif
  return chosen != 0;
}

/// For barriers that count threads instead of bytes.
__device__ inline void mbarrier_arrive(Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}

/// Makes barriers, and shared memory just written, known to TMA; a block's barrier must
/// follow.
__device__ inline void fence_barrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// One thread says how many bytes are to come, then starts the copies.
__device__ inline void mbarrier_expect_tx(Mbarrier* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}

/// Fetches what describes a tensor, before the first copy.
__device__ inline void prefetch_tensormap(const CUtensorMap& map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(&map)) : "memory");
#endif
}
template <class... Maps>
__device__ void prefetch_tensormaps(const Maps&... maps) {
  (prefetch_tensormap(maps), ...);
}

struct TmaCoord {
  int column, across, down, head, image;
};

__device__ inline void tma_load(void* to, const CUtensorMap& map, const TmaCoord& at,
                                Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(shared_address(barrier)), "r"(at.column),
      "r"(at.across), "r"(at.down), "r"(at.head), "r"(at.image)
      : "memory");
#endif
}

/// Brings a box as far as the cache that all multiprocessors share. Nothing is read by that, so the
/// launch before may still be writing there.
__device__ inline void tma_prefetch(const CUtensorMap& map, const TmaCoord& at) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(
                   reinterpret_cast<std::uint64_t>(&map)),
               "r"(at.column), "r"(at.across), "r"(at.down), "r"(at.head), "r"(at.image)
               : "memory");
#endif
}

/// Whether the barrier's turn number `turn` is over, for those who ask before other work: the
/// answer takes a while.
__device__ inline bool mbarrier_test_wait(Mbarrier* barrier, int phase) {
  std::uint32_t done = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(phase & 1)
      : "memory");
#endif
  return done != 0;
}

/// Starts writing a box from shared memory, after fence_proxy_async; nothing is written beyond
/// the tensor.
__device__ inline void tma_store(const CUtensorMap& map, const TmaCoord& at, const void* from) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(reinterpret_cast<std::uint64_t>(&map)),
      "r"(shared_address(from)), "r"(at.column), "r"(at.across), "r"(at.down), "r"(at.head),
      "r"(at.image)
      : "memory");
#endif
}
/// The same, adding to what is there; numbers are rounded to the tensor's type.
__device__ inline void tma_reduce_add(const CUtensorMap& map, const TmaCoord& at,
                                      const void* from) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, "
      "%6}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(reinterpret_cast<std::uint64_t>(&map)),
      "r"(shared_address(from)), "r"(at.column), "r"(at.across), "r"(at.down), "r"(at.head),
      "r"(at.image)
      : "memory");
#endif
}
/// Until all that this thread has started to write, but for the last `Pending` boxes, has been
/// read: shared memory must last so long.
template <int Pending = 0>
__device__ void tma_store_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
#endif
}

/// Waits until the barrier's turn number `turn` (0, 1, 2, …) is over.
__device__ inline void mbarrier_wait(Mbarrier* barrier, int phase) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}\n"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(phase & 1)
        : "memory");
#endif
}

}  // namespace sape2::kernels::cuda
