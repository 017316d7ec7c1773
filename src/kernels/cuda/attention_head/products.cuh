#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/common/tile.cuh"

namespace sape2::kernels::cuda::head {

/// A head's large products: a warp's 16 slots with all others. With wgmma, one of the tiles is read
/// from shared memory once for 64 slots; elsewhere each warp reads it for its own 16.
/// `Ahead`: registers suffice for another product to be under way.
template <class T, int Size, GridKind Grid, bool SuitsWarpgroups = true,
          bool Ahead = is_exact(Grid)>
struct Products {
  static constexpr bool kByWarpgroups = kHasWgmma && is_alone(Grid, Size) && SuitsWarpgroups;
  static constexpr bool kAhead = kByWarpgroups && Ahead;
  LdmatrixOffsets<Size> offsets;
  int slots;
  bool works;  // false: this warp only completes a warpgroup

  /// Waits for all but `Pending` batches of this thread's copies; after a barrier every product may
  /// read them.
  template <int Pending>
  __device__ static void finish_copies() {
    cp_async_wait<Pending>();
    if constexpr (kByWarpgroups) fence_proxy_async();
  }

  /// c = a · tileᵀ for `Count` sixteens of slots from `slot` on; `tile`: where it begins.
  template <int Count>
  __device__ void multiply_rows(float (&c)[Count][2][4], const RowsAsA<T, Size>& a,
                                std::uint32_t tile, int slot) const {
    if constexpr (kByWarpgroups && Count > 1) {
      start_rows(c, a, tile, slot);
      finish_rows(c);
    } else {
#pragma unroll
      for (int n = 0; n < Count; ++n)
        multiply(c[n], a, at_slots<Size>(tile + offsets.b_rows, slot + 16 * n));
    }
  }

  /// Goes through c = a · tileᵀ of all slots, 32 at a time, as one sixteen's waits hide behind the
  /// other's work, and what is left: make(slot, c) of each sixteen, then use(slot, c) of both.
  template <class Make, class Use>
  __device__ void for_rows(const RowsAsA<T, Size>& a, std::uint32_t tile, Make make,
                           Use use) const {
    const auto make_and_use = [&](int slot, auto& c) {
#pragma unroll
      for (int n = 0; n < sizeof(c) / sizeof(c[0]); ++n) make(slot + 16 * n, c[n]);
      use(slot, c);
    };
    int slot = 0;
    if constexpr (kAhead) {
      // The next product is under way meanwhile, after the last one some again that nobody needs:
      // none may depend on a condition.
      float c[2][2][2][4];
      const auto start = [&](auto& next, int at) {
        start_rows(next, a, tile, min(at, slots / 32 * 32 - 32));
      };
      start_rows(c[0], a, tile, 0);
#pragma unroll 1
      for (; slot + 64 <= slots; slot += 64) {
        finish_rows(c[0]);
        start(c[1], slot + 32);
        make_and_use(slot, c[0]);
        finish_rows(c[1]);
        start(c[0], slot + 64);
        make_and_use(slot + 32, c[1]);
      }
      finish_rows(c[0]);
      if (slot + 32 <= slots) {
        make_and_use(slot, c[0]);
        slot += 32;
      }
    } else {
#pragma unroll 1
      for (; slot + 32 <= slots; slot += 32) {
        float c[2][2][4];
        if constexpr (kByWarpgroups || Size < 64) {
          multiply_rows(c, a, tile, slot);
          make_and_use(slot, c);
        } else {  // registers are short: one sixteen is made before the next is multiplied
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            multiply(c[n], a, at_slots<Size>(tile + offsets.b_rows, slot + 16 * n));
            make(slot + 16 * n, c[n]);
          }
          use(slot, c);
        }
      }
    }
    if (slot < slots) {
      float c[1][2][4];
      multiply_rows(c, a, tile, slot);
      make_and_use(slot, c);
    }
  }

  /// c += a · tile for `Count` sixteens of rows from `row` on; of the tile's columns all or
  /// sixteen, number `sixteen` of these.
  template <int N8, int Count>
  __device__ void add_columns(float (&c)[N8][4], const FragmentA<T> (&a)[Count], std::uint32_t tile,
                              int row, int sixteen = 0) const {
    static_assert(N8 == Size / 8 || N8 == 2);
    if constexpr (kByWarpgroups) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
      wgmma_fence();
      start_wgmma_rs<T>(c, a, smem_descriptor(at_slots<Size>(tile, row)) + 2 * sixteen);
      wgmma_commit_and_wait();
      fence_accumulators(c);
      fence_operands(a);
#endif
    } else {
      const std::uint32_t from = next_columns<Size>(tile + offsets.b_columns, sixteen);
#pragma unroll
      for (int n = 0; n < Count; ++n) mma_columns<T>(c, a[n], at_slots<Size>(from, row + 16 * n));
    }
  }

  /// c += a · tile over `rows` of it, for sixteen of which load(registers, row) gives A, if any.
  template <int N8, class Load>
  __device__ void add_columns(float (&c)[N8][4], std::uint32_t tile, int rows, Load load,
                              int sixteen = 0) const {
    const auto add = [&](int row, auto count) {
      FragmentA<T> a[decltype(count)::value] = {};
#pragma unroll
      for (int n = 0; n < decltype(count)::value; ++n) load(a[n].r, row + 16 * n);
      add_columns(c, a, tile, row, sixteen);
    };
    int row = 0;
#pragma unroll 1
    for (; row + 64 <= rows; row += 64) add(row, std::integral_constant<int, 4>());
    if constexpr (kByWarpgroups) {  // whose every start costs a wait
      if (row + 32 <= rows) {
        add(row, std::integral_constant<int, 2>());
        row += 32;
      }
    }
#pragma unroll 1
    for (; row < rows; row += 16) add(row, std::integral_constant<int, 1>());
  }

 private:
  template <int Count>
  __device__ void start_rows(float (&c)[Count][2][4], const RowsAsA<T, Size>& a, std::uint32_t tile,
                             int slot) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& accumulators = reinterpret_cast<float(&)[2 * Count][4]>(c);
    const std::uint64_t rows = smem_descriptor(at_slots<Size>(tile, slot));
    fence_accumulators(accumulators);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Size / 16; ++k) wgmma_rs<T>(accumulators, a.k[k], rows + 2 * k, k > 0);
    wgmma_commit();
#endif
  }
  template <int Count>
  __device__ static void finish_rows(float (&c)[Count][2][4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wgmma_wait<0>();
    fence_accumulators(reinterpret_cast<float(&)[2 * Count][4]>(c));
#endif
  }
};

}  // namespace sape2::kernels::cuda::head
