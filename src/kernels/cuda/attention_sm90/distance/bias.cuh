#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/host/params.h"

/// The distance form's part in the passes on Hopper.
namespace sape2::kernels::cuda::sm90 {

// Squares that rounding made negative count with their size, no more than what rounding does to
// all others; that costs no instruction.

__device__ inline float root_of_distance(float square) {
  float root;
  asm("{.reg .f32 x; abs.f32 x, %1; sqrt.approx.ftz.f32 %0, x;}" : "=f"(root) : "f"(square));
  return root;
}
/// 1/√x, infinite at 0.
__device__ inline float inverse_root_of_distance(float square) {
  float inverse;
  asm("{.reg .f32 x; abs.f32 x, %1; rsqrt.approx.ftz.f32 %0, x;}" : "=f"(inverse) : "f"(square));
  return inverse;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Distances of a block's rows from a tile of columns, along one axis.
template <int kN8>
struct DistanceBias {
  int prefix;
  float row_norms[2];

  DistanceBias() = default;
  /// `row` and row + 8 are this lane's.
  __device__ DistanceBias(const AttentionParams& p, std::int64_t batch_head, int row, int axis)
      : prefix(p.geometry.prefix) {
    const float* const norms =
        (axis ? p.vectors.norm_y : p.vectors.norm_x) + batch_head * p.geometry.padded_tokens + row;
    row_norms[0] = norms[0];
    row_norms[1] = norms[8];
  }

  __device__ DistanceBias(int prefix_tokens, float2 norms)
      : prefix(prefix_tokens), row_norms{norms.x, norms.y} {}

  /// From a product of vectors to a squared distance, number e of a n8 fragment; `norms` are those
  /// of its columns.
  __device__ float square(float product, float2 norms, int e) const {
    return fmaf(-2.0F, product, row_norms[e / 2] + (e % 2 ? norms.y : norms.x));
  }
  /// Prefix tokens are at no distance: what was made of their vectors becomes 0.
  __device__ void clear_prefix(float (&c)[kN8][4], int row, int first_column) const {
    const Lane lane;
    if (prefix <= min(row / 16 * 16, first_column)) return;
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row + e / 2 * 8 < prefix || first_column + n8 * 8 + 2 * lane.t + e % 2 < prefix)
          c[n8][e] = 0.0F;
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
