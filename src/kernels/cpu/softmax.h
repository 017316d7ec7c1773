// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_SOFTMAX_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_SOFTMAX_H_
#undef SAPE2_KERNELS_CPU_SOFTMAX_H_
#else
#define SAPE2_KERNELS_CPU_SOFTMAX_H_
#endif

#include "cpu/tile_bias.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// Online softmax of a panel of queries; each is kTile floats.
struct SoftmaxState {
  float* maximum;
  float* sum;
  float* shrink;  ///< what earlier sums must be multiplied by after the last tile
};

/// What the forward pass found for a panel of queries; each is kTile floats.
struct SoftmaxResult {
  const float* maximum;
  const float* inverse;  ///< 1 / sum
};

/// Turns scores into e^(logit − maximum) in place and updates the state. Returns whether any
/// `shrink` differs from 1.
bool softmax_tile(int rows, int width, float scale, const TileBias& bias, float* scores,
                  const SoftmaxState& state);

/// Adds Σ P·dP over the keys of a tile to delta: what softmax_gradient_tile subtracts, from the
/// very numbers it is subtracted from.
void softmax_delta_tile(int rows, int width, float scale, const TileBias& bias,
                        const SoftmaxResult& softmax, const float* scores,
                        const float* dprobabilities, float* delta);

/// scores → dS = scale · P (dP − delta), dprobabilities → P, in place. For a direct bias also sums
/// dS over rows and columns of the grid. A null delta says that the tile has all keys, and delta is
/// found there.
/// Returns Σ dS · b for a bias given as a tile, else 0.
double softmax_gradient_tile(int rows, int width, float scale, const TileBias& bias,
                             const SoftmaxResult& softmax, const float* delta, float* scores,
                             float* dprobabilities, float* dx, float* dy);

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
