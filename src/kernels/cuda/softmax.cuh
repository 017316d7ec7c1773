#pragma once

#include <cuda_runtime.h>

/// Softmax over logits that are already multiplied by log2(e).
namespace sape2::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

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
  template <int Pieces, int OutPieces>
  __device__ void update(float (&logits)[Pieces][4], float (&out)[OutPieces][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = maximum[half];
#pragma unroll
      for (int piece = 0; piece < Pieces; ++piece)
        top = fmaxf(top, fmaxf(logits[piece][2 * half], logits[piece][2 * half + 1]));
      top = row_max(top);
      // A row without any finite logit so far has no maximum to subtract.
      const float base = top == -INFINITY ? 0.0F : top;
      const float rescale = exp2f(maximum[half] - base);
      maximum[half] = top;
      sum[half] *= rescale;
#pragma unroll
      for (int piece = 0; piece < OutPieces; ++piece) {
        out[piece][2 * half] *= rescale;
        out[piece][2 * half + 1] *= rescale;
      }
#pragma unroll
      for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          logits[piece][e] = exp2f(logits[piece][e] - base);
          sum[half] += logits[piece][e];
        }
    }
  }

  /// Call once, at the end: the factor that normalises row `half`.
  __device__ float finish(int half) {
    sum[half] = row_sum(sum[half]);
    return 1.0F / sum[half];
  }
  __device__ float log_sum_exp(int half) const {
    return kLn2 * maximum[half] + logf(sum[half]);
  }
};

}  // namespace sape2::kernels::cuda
