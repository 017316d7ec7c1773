#pragma once

#include <cuda_runtime.h>

namespace sape2::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float approximate_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// e^(logit − maximum), given maximum · log2(e). Forward and backward use this one expression, so
/// that its rounding cancels.
__device__ inline float relative_weight(float logit, float scaled_maximum) {
  return power_of_2(fmaf(logit, kLog2E, -scaled_maximum));
}

/// Sum or maximum over the four lanes that share a row.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// The running maximum and sum of this lane's two rows.
struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};  // of this lane's columns only

  /// Turns a tile's logits into weights relative to the new maximum and rescales `out` to it.
  template <int N8, int OutN8>
  __device__ void update(float (&logits)[N8][4], float (&out)[OutN8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = maximum[half];
#pragma unroll
      for (int n8 = 0; n8 < N8; ++n8)
        top = fmaxf(top, fmaxf(logits[n8][2 * half], logits[n8][2 * half + 1]));
      top = row_max(top);
      // A row without any finite logit so far has no maximum to subtract.
      const float scaled = top == -INFINITY ? 0.0F : top * kLog2E;
      // From one rounded maximum to the other: weights so far are relative to the rounded one,
      // which for large logits is not what relative_weight would start from.
      const float rescale = power_of_2(__fmul_rn(maximum[half], kLog2E) - scaled);
      maximum[half] = top;
      sum[half] *= rescale;
#pragma unroll
      for (int n8 = 0; n8 < OutN8; ++n8) {
        out[n8][2 * half] *= rescale;
        out[n8][2 * half + 1] *= rescale;
      }
#pragma unroll
      for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          logits[n8][e] = relative_weight(logits[n8][e], scaled);
          sum[half] += logits[n8][e];
        }
    }
  }

  /// Call once, at the end: makes the sums those of whole rows.
  __device__ void finish() {
    sum[0] = row_sum(sum[0]);
    sum[1] = row_sum(sum[1]);
  }
};

}  // namespace sape2::kernels::cuda
