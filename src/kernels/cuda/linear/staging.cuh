#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/linear/fits.h"

#include <cstdint>

/// How results leave a warp: 16 rows by 64 columns at a time, through shared memory and TMA.
namespace sape2::kernels::cuda::linear {

/// 16 rows × 64 columns, swizzled as TMA expects. place() is this lane's row address for ldmatrix
/// and stmatrix of 16 columns, which the warp's lanes hold as after a wgmma.
struct Slot {
  std::uint32_t address;

  __device__ std::uint32_t place(int sixteen) const {
    const int lane = threadIdx.x % 32, row = lane % 16;
    return address + row * 128 + ((2 * sixteen + lane / 16) ^ row % 8) * 16;
  }
  __device__ void store(int sixteen, const FragmentA<Bf16>& pairs) const {
    store_fragment(place(sixteen), pairs);
  }
  __device__ FragmentA<Bf16> load(int sixteen) const {
    FragmentA<Bf16> pairs;
    ldmatrix_x4(pairs.r, place(sixteen));
    return pairs;
  }
};

/// A warp's slots. It takes them in turn, and TMA reads a slot while the next is filled.
template <int Slots>
struct Staging {
  unsigned char* data;
  int next = 0;

  __device__ Slot slot(int index) const { return {shared_address(data) + index * kSlotBytes}; }

  /// The next `Together` slots, once TMA has read what they held; gives the first one's index.
  template <int Together>
  __device__ int take() {
    static_assert(Together <= Slots);
    if (threadIdx.x % 32 == 0) tma_store_wait<Slots - Together>();
    __syncwarp();
    const int first = next;
    next = (next + Together) % Slots;
    return first;
  }
  /// Sends slot `index` to rows `row` …, columns `column` … of a matrix.
  __device__ void send(int index, const CUtensorMap& to, int column, int row) {
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) tma_store(to, {column, row, 0, 0, 0}, data + index * kSlotBytes);
  }
  /// Until TMA has read everything.
  __device__ void drain() const {
    if (threadIdx.x % 32 == 0) tma_store_wait<0>();
    __syncwarp();
  }
};

}  // namespace sape2::kernels::cuda::linear
