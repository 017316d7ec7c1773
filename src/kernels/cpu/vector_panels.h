// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_VECTOR_PANELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_VECTOR_PANELS_H_
#undef SAPE2_KERNELS_CPU_VECTOR_PANELS_H_
#else
#define SAPE2_KERNELS_CPU_VECTOR_PANELS_H_
#endif

#include "cpu/layout.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// One head's axis vectors, (patches, cols) and (patches, rows), as panels (panels, lines, kTile),
/// component by component, one patch a lane. `scratch` is kTile · padded(longest axis).
void load_vectors(const Layout& layout, const void* x, const void* y, DType dtype, bool add,
                  float* scratch, float* panels);

/// The other way round, multiplied by `factor`; x or y may be null.
void store_vectors(const Layout& layout, const float* panels, float factor, DType dtype,
                   float* scratch, void* x, void* y);

/// Floats that `scratch` needs.
inline std::size_t vector_scratch(const Layout& layout) {
  const int longest = layout.rows > layout.cols ? layout.rows : layout.cols;
  return static_cast<std::size_t>(2 * kTile) * padded(longest);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
