// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_DISTANCE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_DISTANCE_H_
#undef SAPE2_KERNELS_CPU_DISTANCE_H_
#else
#define SAPE2_KERNELS_CPU_DISTANCE_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// Distances of the vectors of `rows` keys and of a panel of queries, one axis. Components are
/// subtracted before they are squared, so equal vectors are at exactly 0 and close ones lose
/// nothing. All matrices have kTile lanes a row.
void distance_tile(int depth, int rows, int width,
                   const float* keys,     // (depth, rows)
                   const float* queries,  // (depth, width)
                   bool add,              // to `distance`, or overwrite it
                   float* distance,       // (rows, width)
                   float* inverse);       // (rows, width): 1 / distance, 0 where it is 0; or null

/// dquery_i += Σ_n weight_ni · (query_i − key_n), one axis.
void distance_gradient(int depth, int rows, int width,
                       const float* weights,  // (rows, width)
                       const float* keys,     // (depth, rows)
                       const float* queries,  // (depth, width)
                       float* dqueries);      // (depth, width)

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
