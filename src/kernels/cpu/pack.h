// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_PACK_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_PACK_H_
#undef SAPE2_KERNELS_CPU_PACK_H_
#else
#define SAPE2_KERNELS_CPU_PACK_H_
#endif

#include "cpu/layout.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// Copies `count` rows of `size` elements into float rows `ld` apart.
void load_rows(const void* source, DType dtype, std::int64_t stride, int count, int size,
               float* rows, int ld);

/// The other way round, multiplying row r by `factors[r]` where factors are given.
void store_rows(const float* rows, int ld, int count, int size, const float* factors, void* target,
                DType dtype, std::int64_t stride);

/// One head's (tokens, head_size) view into a packed matrix, patches first; its padding stays.
void load_head(const Layout& layout, const void* head, DType dtype, std::int64_t stride,
               float* matrix);

/// Whether a head's view lies in memory as a packed matrix does, so that it needs no copy.
bool is_packed(const Layout& layout, DType dtype, std::int64_t stride);

/// A head as a packed matrix for reading: where it is, or loaded into `buffer`.
const float* packed_head(const Layout& layout, const void* head, DType dtype, std::int64_t stride,
                         float* buffer);

/// A packed matrix into one head's view, token n multiplied by `factors[n]` where they are given.
void store_head(const Layout& layout, const float* matrix, const float* factors, void* head,
                DType dtype, std::int64_t stride);

/// target[c][r] = source[r][c]. `rows` is a multiple of kPad, and columns are read up to the next
/// multiple of 4.
void transpose(const float* source, int source_ld, int rows, int columns, float* target,
               int target_ld);

/// A packed matrix as panels: (panels, head_size, kTile).
void transpose_head(const Layout& layout, const float* matrix, float* panels);

/// Zeroes `count` floats.
void clear(float* data, std::size_t count);

/// Pads of rows that a vector kernel reads: sets lanes from `valid` up to `width` to zero.
void clear_lanes(float* rows, int count, int valid, int width);

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
