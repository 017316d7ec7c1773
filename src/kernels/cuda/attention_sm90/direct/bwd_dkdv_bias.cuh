#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/common/element.cuh"

/// The direct form's bias where keys stand along rows, a square of the grid (SquareTiling).
namespace sape2::kernels::cuda::sm90 {

/// What each of a warp's 16 keys takes of a query's vectors, one of eight entries of x and one of
/// eight of y, as rows of a matrix in registers; `Exact`: the ratio is a number of type T.
template <class T, bool Exact>
struct KeysBias {
  FragmentA<T> high, low;  // the ratio's first part, and what that lacks
  bool in_two_parts;

  __device__ KeysBias(float ratio, bool in_grid) {
    const InTwoParts<T> parts(ratio);
    in_two_parts = !Exact && parts.low != 0.0F;
    choose(high, in_grid ? parts.high : 0.0F);
    if constexpr (!Exact) choose(low, in_grid ? parts.low : 0.0F);
  }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  /// Starts c = the bias, by the shared-memory descriptor of 64 queries' vectors.
  __device__ void start(float (&c)[8][4], std::uint64_t vectors) const {
    wgmma_rs<T>(c, high, vectors, 0);
    if constexpr (!Exact)
      if (in_two_parts) wgmma_rs<T>(c, low, vectors, 1);
  }
#endif

 private:
  /// A lane's keys of either half stand in one grid row each, in column g of the square.
  __device__ static void choose(FragmentA<T>& a, float value) {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int down = threadIdx.x / 32 * 2 + half;
      a.r[half] = on_diagonal<T>(value);
      a.r[2 + half] =
          pack<T>(down == 2 * lane.t ? value : 0.0F, down == 2 * lane.t + 1 ? value : 0.0F);
    }
  }
};

}  // namespace sape2::kernels::cuda::sm90
