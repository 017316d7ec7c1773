#pragma once

#include "kernels/cuda/common/online_softmax.cuh"

namespace sape2::kernels::cuda::sm90 {

/// The softmax of this lane's two rows. Weights are relative to a logit near the greatest so far;
/// it moves only when a tile's weights become large, so tiles need no maximum of their own. Before
/// the first tile it is taken to be 0, which is good enough for most heads. Logits are times
/// log2(e).
struct LazySoftmax {
  // Of a lane's sum over a tile, so that each weight is a 16-bit number; over the first one.
  static constexpr float kLargest = 32768.0F, kSmallest = 1.0F / 16;
  // What weights are relative to, −∞: nothing yet; its negative, ∞ where no weights shall be
  // finite.
  float top[2] = {-INFINITY, -INFINITY}, shift[2] = {0.0F, 0.0F};
  float sum[2] = {0.0F, 0.0F}, tile_sum[2][2];

  __device__ void begin_tile() {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile_sum[i / 2][i % 2] = 0.0F;
  }
  /// The weight of a logit plus its row's shift, number e of a n8 fragment.
  __device__ float weigh(float shifted, int e) {
    const float weight = power_of_2(shifted);
    tile_sum[e / 2][e % 2] += weight;
    return weight;
  }
  /// Whether a warp's weights are to be made again, not finite ones among them.
  __device__ bool overflows() const {
    return __any_sync(0xffffffffu, !(tile_sum[0][0] + tile_sum[0][1] <= kLargest) ||
                                       !(tile_sum[1][0] + tile_sum[1][1] <= kLargest));
  }
  /// The same of the first tile's, which may also be too small for those to come. If neither, 0 is
  /// what weights are relative to.
  __device__ bool begins_badly() {
    if (overflows() || __any_sync(0xffffffffu, tile_sum[0][0] + tile_sum[0][1] < kSmallest ||
                                                   tile_sum[1][0] + tile_sum[1][1] < kSmallest))
      return true;
    top[0] = top[1] = 0.0F;
    return false;
  }
  /// Goes to the greatest logit so far, given the greatest of this lane's in the tile, and has
  /// `out` follow.
  __device__ void move(const float (&greatest)[2], float (&out)[8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float now = fmaxf(top[half], row_max(greatest[half]));
      // A row without any finite logit so far has nothing to be relative to.
      const float rescale = now == -INFINITY ? 0.0F : power_of_2(top[half] - now);
      top[half] = now;
      shift[half] = now == -INFINITY ? 0.0F : -now;
      sum[half] *= rescale;
#pragma unroll
      for (int n8 = 0; n8 < 8; ++n8) {
        out[n8][2 * half] *= rescale;
        out[n8][2 * half + 1] *= rescale;
      }
    }
  }
  __device__ void end_tile() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += tile_sum[half][0] + tile_sum[half][1];
      if (top[half] == -INFINITY) shift[half] = INFINITY;
    }
  }
};

}  // namespace sape2::kernels::cuda::sm90
