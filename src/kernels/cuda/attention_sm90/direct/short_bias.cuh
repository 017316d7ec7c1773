#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

/// x's part of the direct form's bias by wgmma, for short vectors in whole grids.
namespace sape2::kernels::cuda::sm90 {

/// The product takes rows of x as they lie in shared memory, of 64 bytes, and a matrix that says
/// which entry is for which key, with the ratio where one is.
template <class T, int RowN8>
struct ShortDirect {
  static constexpr bool kServes = RowN8 > 0 && RowN8 <= 4;
  static constexpr int kRowBytes = 64, kKeys = kTileN8<RowN8> * 8, kSteps = (RowN8 + 1) / 2;
  static constexpr int kBytes = kRowTile * kRowBytes;  // of x, and of the matrix

  /// Before wgmma is told of it, and a barrier.
  __device__ static void write_matrix(unsigned char* shared, float ratio) {
    for (int i = threadIdx.x; i < kKeys * 4; i += kThreads) {
      const int key = i / 4, chunk = i % 4, entry = key % (8 * RowN8) - chunk * 8;
      const auto pair = [&](int first) {
        return pack<T>(entry == first ? ratio : 0.0F, entry == first + 1 ? ratio : 0.0F);
      };
      *reinterpret_cast<uint4*>(shared + key * kRowBytes + (chunk ^ key / 2 % 4) * 16) =
          make_uint4(pair(0), pair(2), pair(4), pair(6));
    }
  }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  /// Starts c = x's part of a tile's bias as scores.
  __device__ static void start(float (&c)[kTileN8<RowN8>][4], const unsigned char* x,
                               const unsigned char* matrix) {
    start_wgmma_ss<T, kSteps>(c, smem_descriptor<kRowBytes>(shared_address(x)),
                              smem_descriptor<kRowBytes>(shared_address(matrix)));
  }
#endif
};

}  // namespace sape2::kernels::cuda::sm90
