// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_AXIS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_AXIS_H_
#undef SAPE2_KERNELS_CPU_AXIS_H_
#else
#define SAPE2_KERNELS_CPU_AXIS_H_
#endif

#include "sape2/kernels/types.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// Stage 1 along one axis for a panel of patches, one patch a lane; a matrix row is kTile lanes.
struct Axis {
  Span span;
  int length;          ///< patches in a line: cols for x, rows for y
  int positions;       ///< rows of the table
  const float* place;  ///< (kTile): where on the axis each patch stands; not used for suffix
  int behind = 0;      ///< entries of the line behind these, where it is taken in pieces
};

/// Gates and clamped positions from the scores q_i·k_j of every patch with its line. Where a line
/// is taken in pieces (suffix only), from the last to the first, `carry` holds the sum so far, and
/// the excess that rounding has added to it.
void axis_positions(const Axis& axis, int width, float gate_scale, float gate_offset,
                    const float* scores,      // (length, kTile)
                    float* gates,             // (length, kTile)
                    float* positions,         // (length, kTile)
                    float* carry = nullptr);  // (2, kTile)

/// Reads the table values at the positions.
void axis_interpolate(const Axis& axis, int width, const float* positions,
                      const float* table,      // (positions, kTile): a_i · e[p]
                      bool add, float* axes);  // (length, kTile)

/// Gradient of axis_interpolate: adds to `dtable`, and to `dpositions` where `add`.
void axis_interpolate_gradient(const Axis& axis, int width, const float* positions,
                               const float* table, const float* daxes,
                               float* dtable,                 // (positions, kTile)
                               bool add, float* dpositions);  // (length, kTile)

struct GateGradient {
  double scale = 0.0;
  double offset = 0.0;
};

/// Gradient of axis_positions; turns dpositions into the scores' gradient in place. Pieces of a
/// line come from the first to the last.
GateGradient axis_gate_gradient(const Axis& axis, int width, float gate_scale, const float* scores,
                                const float* gates, float* dpositions, float* carry = nullptr);

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
