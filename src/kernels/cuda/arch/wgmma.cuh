#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Products of 64 rows by a whole warpgroup, Hopper's own: operands straight from shared memory, in
/// tiles of 64 columns swizzled over 128 bytes. Results have the layout of arch/mma.cuh.
namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

/// Whether tiles of this type and width take part.
template <class T>
__host__ __device__ constexpr bool suits_wgmma(int columns) {
  return kHasWgmma && Tile<T>::swizzled(columns);
}

/// Shared-memory descriptors of rows `row` … of columns 64·panel … of a tile: start, eight rows to
/// 1024 bytes, swizzle over 128 bytes.
template <class T>
__device__ std::uint64_t smem_descriptor(const Tile<T>& tile, int row, int panel) {
  const std::uint64_t start = shared_address(tile.data + (panel * tile.rows + row) * 128);
  return (start & 0x3ffff) >> 4 | std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 16 |
         std::uint64_t{1} << 62;
}

/// The same from an address of shared memory, of rows of 128 bytes, or of 64 and swizzled over
/// those.
template <int RowBytes = 128>
__device__ std::uint64_t smem_descriptor(std::uint32_t address) {
  static_assert(RowBytes == 128 || RowBytes == 64);
  constexpr std::uint32_t kSwizzle = RowBytes == 128 ? 1 : 2;
  return std::uint64_t{kSwizzle << 30 | 8 * RowBytes >> 4} << 32 | (address >> 4 | 1 << 16);
}

/// The same for rows of sixteen numbers that lie as two panels of eight each, rows of 16 bytes one
/// below the other: the second `further` bytes behind the first.
__device__ inline std::uint64_t smem_descriptor_unswizzled(std::uint32_t address,
                                                           std::uint32_t further) {
  return std::uint64_t{8 * 16 >> 4} << 32 | (further >> 4 << 16 | address >> 4);
}

/// Shared memory written by ordinary stores and copies is visible to wgmma, and to the
/// TMA, after this and a barrier.
__device__ inline void fence_proxy_async() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` commits are still in work.
template <int Pending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
__device__ inline void wgmma_commit_and_wait() {
  wgmma_commit();
  wgmma_wait<0>();
}

/// Keeps arithmetic on its side of a wait for products, where the assembler would rather wait
/// first: an event for profilers, which nothing is moved across.
__device__ inline void keep_instruction_order() {
  asm volatile("pmevent 0;" ::: "memory");
}

/// wgmma reads fragments until the wait that precedes this; until then nothing else may
/// take their registers.
template <class T, int N8>
__device__ void fence_operands(const FragmentA<T> (&a)[N8]) {
#pragma unroll
  for (int k = 0; k < N8; ++k)
    asm volatile("" ::"r"(a[k].r[0]), "r"(a[k].r[1]), "r"(a[k].r[2]), "r"(a[k].r[3]) : "memory");
}

/// Keeps the compiler from moving reads of a result to before the wait that precedes this.
template <int N8>
__device__ void fence_accumulators(float (&c)[N8][4]) {
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[n8][e])::"memory");
}

/// Starts c = a · bᵀ over `Steps` sixteens of k, or c += that; all of one panel of 64 columns, by
/// descriptors.
template <class T, int Steps = 4, bool Add = false, int N8>
__device__ void start_wgmma_ss(float (&c)[N8][4], std::uint64_t a, std::uint64_t b) {
#pragma unroll
  for (int k = 0; k < Steps; ++k) wgmma_ss<T>(c, a + 2 * k, b + 2 * k, Add || k > 0);
}
/// Starts c += a · b, `a` fragments of a result, its columns along the rows of b; of c the first
/// 64 columns, or all 16.
template <class T, int N8, int KN8>
__device__ void start_wgmma_rs(float (&c)[N8][4], const FragmentA<T> (&a)[KN8], std::uint64_t b) {
  static_assert(N8 >= 8 || N8 == 2);
#pragma unroll
  for (int k = 0; k < KN8; ++k) {
    if constexpr (N8 == 2) {
      wgmma_rs_mn_major_n16<T>(c, a[k], b + 128 * k);
    } else {
      wgmma_rs_mn_major<T>(c, a[k], b + 128 * k);
    }
  }
}
template <class T, int N8, int KN8>
__device__ void start_wgmma_rs(float (&c)[N8][4], const FragmentA<T> (&a)[KN8], const Tile<T>& b) {
  start_wgmma_rs<T>(c, a, smem_descriptor(b, 0, 0));
}

#endif

/// c = a · bᵀ for this warp's 16 of the block's 64 rows; HeadSize columns of both meet.
template <int HeadSize, class T, int N8>
__device__ void row_product(float (&c)[N8][4], const Tile<T>& a, const Tile<T>& b) {
  if constexpr (suits_wgmma<T>(HeadSize)) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < HeadSize / 16; ++k)
      wgmma_ss<T>(c, smem_descriptor(a, 0, k / 4) + k % 4 * 2,
                  smem_descriptor(b, 0, k / 4) + k % 4 * 2, k > 0);
    wgmma_commit_and_wait();
#endif
  } else {
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n8][e] = 0.0F;
    add_product_with_rows(c, a, threadIdx.x / 32 * 16, b, HeadSize);
  }
}

/// c += p · b: `p` is a result of 16 × (8·KN8), its columns meet the rows of b.
template <class T, int N8, int KN8>
__device__ void add_column_product(float (&c)[N8][4], const float (&p)[KN8][4], const Tile<T>& b) {
  if constexpr (suits_wgmma<T>(N8 * 8)) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    FragmentA<T> a[KN8 / 2];
#pragma unroll
    for (int k = 0; k < KN8 / 2; ++k) a[k] = as_a<T>(p[2 * k], p[2 * k + 1]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KN8 / 2; ++k)
#pragma unroll
      for (int panel = 0; panel < N8 / 8; ++panel)
        wgmma_rs_mn_major<T>(c + 8 * panel, a[k], smem_descriptor(b, 16 * k, panel));
    wgmma_commit_and_wait();
#endif
  } else {
    add_product_with_columns<T>(c, p, b);
  }
}

}  // namespace sape2::kernels::cuda
