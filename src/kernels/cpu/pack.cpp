// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pack.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/math-inl.h"
#include "cpu/pack.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

namespace {

using Bits = std::uint16_t;

HWY_INLINE std::ptrdiff_t bytes_of(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

HWY_INLINE float float_of(Bits bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  hwy::CopyBytes<4>(&wide, &value);
  return value;
}

/// Rounds to nearest, ties to even; a NaN stays one.
HWY_INLINE Bits bfloat16_of(float value) {
  std::uint32_t bits = 0;
  hwy::CopyBytes<4>(&value, &bits);
  if (value != value) return 0x7FC0;
  return static_cast<Bits>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

HWY_INLINE void load_row(const float* HWY_RESTRICT source, int size, float* HWY_RESTRICT row) {
  const F f;
  int c = 0;
  for (; c + kLanes <= size; c += kLanes) hn::StoreU(hn::LoadU(f, source + c), f, row + c);
  for (; c < size; ++c) row[c] = source[c];
}

HWY_INLINE void load_row(const Bits* HWY_RESTRICT source, int size, float* HWY_RESTRICT row) {
  for (int c = 0; c < size; ++c) row[c] = float_of(source[c]);
}

HWY_INLINE void store_row(const float* HWY_RESTRICT row, int size, float factor,
                          float* HWY_RESTRICT target) {
  const F f;
  const V by = hn::Set(f, factor);
  int c = 0;
  for (; c + kLanes <= size; c += kLanes) {
    hn::StoreU(hn::Mul(by, hn::LoadU(f, row + c)), f, target + c);
  }
  for (; c < size; ++c) target[c] = factor * row[c];
}

HWY_INLINE void store_row(const float* HWY_RESTRICT row, int size, float factor,
                          Bits* HWY_RESTRICT target) {
  for (int c = 0; c < size; ++c) target[c] = bfloat16_of(factor * row[c]);
}

template <typename T>
HWY_INLINE void load_typed_rows(const T* source, std::int64_t stride, int count, int size,
                                float* rows, int ld) {
  for (int r = 0; r < count; ++r) {
    load_row(source + r * stride, size, rows + static_cast<std::ptrdiff_t>(r) * ld);
  }
}

template <typename T>
HWY_INLINE void store_typed_rows(const float* rows, int ld, int count, int size,
                                 const float* factors, T* target, std::int64_t stride) {
  for (int r = 0; r < count; ++r) {
    store_row(rows + static_cast<std::ptrdiff_t>(r) * ld, size, factors ? factors[r] : 1.0F,
              target + r * stride);
  }
}

}  // namespace

void load_rows(const void* source, DType dtype, std::int64_t stride, int count, int size,
               float* rows, int ld) {
  if (dtype == DType::float32) {
    load_typed_rows(static_cast<const float*>(source), stride, count, size, rows, ld);
  } else {
    load_typed_rows(static_cast<const Bits*>(source), stride, count, size, rows, ld);
  }
}

void store_rows(const float* rows, int ld, int count, int size, const float* factors, void* target,
                DType dtype, std::int64_t stride) {
  if (dtype == DType::float32) {
    store_typed_rows(rows, ld, count, size, factors, static_cast<float*>(target), stride);
  } else {
    store_typed_rows(rows, ld, count, size, factors, static_cast<Bits*>(target), stride);
  }
}

void load_head(const Layout& layout, const void* head, DType dtype, std::int64_t stride,
               float* matrix) {
  const char* patches = static_cast<const char*>(head) + layout.prefix * stride * bytes_of(dtype);
  load_rows(patches, dtype, stride, layout.patches, layout.head_size, matrix, layout.ld);
  load_rows(head, dtype, stride, layout.prefix, layout.head_size,
            matrix + static_cast<std::ptrdiff_t>(layout.patches) * layout.ld, layout.ld);
}

bool is_packed(const Layout& layout, DType dtype, std::int64_t stride) {
  return dtype == DType::float32 && stride == layout.ld && layout.prefix == 0 &&
         layout.tokens == layout.padded_tokens && layout.head_size == layout.width;
}

const float* packed_head(const Layout& layout, const void* head, DType dtype, std::int64_t stride,
                         float* buffer) {
  if (is_packed(layout, dtype, stride)) return static_cast<const float*>(head);
  load_head(layout, head, dtype, stride, buffer);
  return buffer;
}

void store_head(const Layout& layout, const float* matrix, const float* factors, void* head,
                DType dtype, std::int64_t stride) {
  char* patches = static_cast<char*>(head) + layout.prefix * stride * bytes_of(dtype);
  store_rows(matrix, layout.ld, layout.patches, layout.head_size, factors, patches, dtype, stride);
  store_rows(matrix + static_cast<std::ptrdiff_t>(layout.patches) * layout.ld, layout.ld,
             layout.prefix, layout.head_size, factors ? factors + layout.patches : nullptr, head,
             dtype, stride);
}

#if HWY_TARGET == HWY_SCALAR

void transpose(const float* source, int source_ld, int rows, int columns, float* target,
               int target_ld) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      target[static_cast<std::ptrdiff_t>(c) * target_ld + r] =
          source[static_cast<std::ptrdiff_t>(r) * source_ld + c];
    }
  }
}

#else

namespace {

/// Block b of the result is source[(4b + row)][0 … 3]: one row of each 4 × 4 block.
HWY_INLINE V load_blocks(const float* source, int ld) {
  const F f;
  V result = hn::LoadDup128(f, source);
  for (int block = 1; block < kLanes / 4; ++block) {
    const V next = hn::LoadDup128(f, source + static_cast<std::ptrdiff_t>(4 * block) * ld);
    result = hn::IfThenElse(hn::FirstN(f, 4 * block), result, next);
  }
  return result;
}

}  // namespace

void transpose(const float* source, int source_ld, int rows, int columns, float* target,
               int target_ld) {
  const F f;
  const hn::RepartitionToWide<F> wide;
  for (int r = 0; r < rows; r += kLanes) {
    for (int c = 0; c < columns; c += 4) {
      const float* from = source + static_cast<std::ptrdiff_t>(r) * source_ld + c;
      float* to = target + static_cast<std::ptrdiff_t>(c) * target_ld + r;
      const V r0 = load_blocks(from, source_ld);
      const V r1 = load_blocks(from + source_ld, source_ld);
      const V r2 = load_blocks(from + 2 * source_ld, source_ld);
      const V r3 = load_blocks(from + 3 * source_ld, source_ld);
      const auto low01 = hn::BitCast(wide, hn::InterleaveLower(f, r0, r1));
      const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(f, r0, r1));
      const auto low23 = hn::BitCast(wide, hn::InterleaveLower(f, r2, r3));
      const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(f, r2, r3));
      const V columns_of[4] = {hn::BitCast(f, hn::InterleaveLower(wide, low01, low23)),
                               hn::BitCast(f, hn::InterleaveUpper(wide, low01, low23)),
                               hn::BitCast(f, hn::InterleaveLower(wide, high01, high23)),
                               hn::BitCast(f, hn::InterleaveUpper(wide, high01, high23))};
      const int left = columns - c;
      for (int j = 0; j < 4 && j < left; ++j) {
        hn::StoreU(columns_of[j], f, to + static_cast<std::ptrdiff_t>(j) * target_ld);
      }
    }
  }
}

#endif

void transpose_head(const Layout& layout, const float* matrix, float* panels) {
  for (int p = 0; p < layout.panel_count; ++p) {
    const Panel panel = layout.panel(p);
    transpose(matrix + static_cast<std::ptrdiff_t>(panel.start) * layout.ld, layout.ld, panel.width,
              layout.head_size, panels + static_cast<std::ptrdiff_t>(p) * layout.head_size * kTile,
              kTile);
  }
}

void clear(float* data, std::size_t count) {
  std::memset(data, 0, count * sizeof(float));
}

void clear_lanes(float* rows, int count, int valid, int width) {
  for (int r = 0; r < count; ++r) {
    for (int lane = valid; lane < width; ++lane) rows[r * kTile + lane] = 0.0F;
  }
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
