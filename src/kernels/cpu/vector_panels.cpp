// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector_panels.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/math-inl.h"
#include "cpu/pack.h"
#include "cpu/vector_panels.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

HWY_INLINE std::ptrdiff_t bytes_of(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

HWY_INLINE void load_axis(const Layout& layout, const void* vectors, DType dtype, int length,
                          int first_entry, bool add, float* scratch, float* panels) {
  const F f;
  const int ld = padded(length);
  const int lines = layout.rows + layout.cols;
  float* turned = scratch + static_cast<std::ptrdiff_t>(kTile) * ld;
  for (int i = 0; i < layout.panel_count; ++i) {
    const Panel p = layout.panel(i);
    const char* from = static_cast<const char*>(vectors) +
                       static_cast<std::ptrdiff_t>(p.start) * length * bytes_of(dtype);
    load_rows(from, dtype, length, p.patches, length, scratch, ld);
    transpose(scratch, ld, p.width, length, turned, kTile);
    clear_lanes(turned, length, p.patches, p.width);
    float* to = panels + (static_cast<std::ptrdiff_t>(i) * lines + first_entry) * kTile;
    for (int c = 0; c < length; ++c) {
      for (int lane = c * kTile; lane < c * kTile + p.width; lane += kLanes) {
        const V value = hn::LoadU(f, turned + lane);
        hn::StoreU(add ? hn::Add(value, hn::LoadU(f, to + lane)) : value, f, to + lane);
      }
    }
  }
}

HWY_INLINE void store_axis(const Layout& layout, const float* panels, float factor, DType dtype,
                           int length, int first_entry, float* scratch, void* vectors) {
  const int ld = padded(length);
  const int lines = layout.rows + layout.cols;
  float factors[kTile];
  for (float& each : factors) each = factor;
  for (int i = 0; i < layout.panel_count; ++i) {
    const Panel p = layout.panel(i);
    const float* from = panels + (static_cast<std::ptrdiff_t>(i) * lines + first_entry) * kTile;
    for (int c = 0; c < length; ++c) {
      for (int lane = 0; lane < p.patches; ++lane) scratch[lane * ld + c] = from[c * kTile + lane];
    }
    char* to = static_cast<char*>(vectors) +
               static_cast<std::ptrdiff_t>(p.start) * length * bytes_of(dtype);
    store_rows(scratch, ld, p.patches, length, factors, to, dtype, length);
  }
}

}  // namespace

void load_vectors(const Layout& layout, const void* x, const void* y, DType dtype, bool add,
                  float* scratch, float* panels) {
  load_axis(layout, x, dtype, layout.cols, 0, add, scratch, panels);
  load_axis(layout, y, dtype, layout.rows, layout.cols, add, scratch, panels);
}

void store_vectors(const Layout& layout, const float* panels, float factor, DType dtype,
                   float* scratch, void* x, void* y) {
  if (x) store_axis(layout, panels, factor, dtype, layout.cols, 0, scratch, x);
  if (y) store_axis(layout, panels, factor, dtype, layout.rows, layout.cols, scratch, y);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
