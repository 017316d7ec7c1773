// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/simd.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/linear/blocks.h"
#include "cpu/linear/gelu-inl.h"
#include "cpu/linear/pass.h"
#include "cpu/math-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

// A block of kMostRows × kMostPanels · kPanel sums stays in registers, with a row of weights.
#if HWY_TARGET == HWY_AVX2
constexpr int kMostRows = 6;
constexpr int kMostPanels = 1;
#elif HWY_TARGET == HWY_SCALAR
constexpr int kMostRows = 2;
constexpr int kMostPanels = 1;
#elif HWY_TARGET <= HWY_AVX3
constexpr int kMostRows = 8;
constexpr int kMostPanels = 3;
#elif HWY_TARGET == HWY_WASM
constexpr int kMostRows = 3;
constexpr int kMostPanels = 1;
#else
constexpr int kMostRows = 6;
constexpr int kMostPanels = 1;
#endif

constexpr int kPanelVectors = static_cast<int>(kPanel) / kLanes;

/// Adds weights of one input to the sums: column[v] holds the panels' weights.
template <int kRows, int kVectors>
HWY_INLINE void add_products(const float* HWY_RESTRICT x, std::int64_t stride,
                             const V (&column)[kVectors], V (&sum)[kRows][kVectors]) {
  const F f;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(f, x[r * stride]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, column[v], sum[r][v]);
  }
}

template <int kRows, int kPanels, int kVectors>
HWY_INLINE void sum_float32(std::int64_t inputs, const float* HWY_RESTRICT x, std::int64_t stride,
                            const char* HWY_RESTRICT panels, std::int64_t panel_bytes,
                            PanelFetch ahead, V (&sum)[kRows][kVectors]) {
  const F f;
  for (std::int64_t i = 0; i < inputs; ++i) {
    ahead.fetch_line();
    V column[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const auto* panel =
          reinterpret_cast<const float*>(panels + v / kPanelVectors * panel_bytes + i * kPanel * 4);
      column[v] = hn::Load(f, panel + v % kPanelVectors * kLanes);
    }
    add_products(x + i, stride, column, sum);
  }
}

template <int kRows, int kPanels, int kVectors>
HWY_INLINE void sum_bfloat16(std::int64_t inputs, const float* HWY_RESTRICT x, std::int64_t stride,
                             const char* HWY_RESTRICT panels, std::int64_t panel_bytes,
                             PanelFetch ahead, V (&sum)[kRows][kVectors]) {
  const F f;
  const hn::RebindToUnsigned<F> u;
  const auto upper = hn::Set(u, 0xFFFF0000U);
  for (std::int64_t i = 0; i < inputs; i += 2) {
    ahead.fetch_line();
    V even[kVectors], odd[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const auto* panel = reinterpret_cast<const std::uint32_t*>(
          panels + v / kPanelVectors * panel_bytes + i * kPanel * 2);
      const auto pair = hn::Load(u, panel + v % kPanelVectors * kLanes);
      even[v] = hn::BitCast(f, hn::ShiftLeft<16>(pair));
      odd[v] = hn::BitCast(f, hn::And(pair, upper));
    }
    add_products(x + i, stride, even, sum);
    if (i + 1 < inputs) add_products(x + i + 1, stride, odd, sum);
  }
}

/// What a product turns into on its way out, for one vector of a row.
HWY_INLINE V finished(V value, const LinearEpilogue& epilogue, const float* bias,
                      const float* factor, const float* added) {
  const F f;
  if (bias) value = hn::Add(value, hn::LoadU(f, bias));
  if (epilogue.activation == Activation::gelu) value = gelu_of(value);
  if (factor) value = hn::Mul(value, hn::LoadU(f, factor));
  if (added) value = hn::Add(value, hn::LoadU(f, added));
  return value;
}

/// The same for the first `count` of its lanes, the last outputs of a layer.
HWY_NOINLINE void finish_some(V value, const LinearEpilogue& epilogue, std::int64_t row,
                              std::int64_t output, std::int64_t count, float* out) {
  alignas(64) float bias[kLanes] = {}, factor[kLanes] = {}, added[kLanes] = {}, result[kLanes];
  for (std::int64_t c = 0; c < count; ++c) {
    if (epilogue.bias) bias[c] = epilogue.bias[output + c];
    if (epilogue.factor) factor[c] = epilogue.factor[output + c];
    if (epilogue.added) added[c] = epilogue.added[row * epilogue.added_stride + output + c];
  }
  hn::Store(finished(value, epilogue, epilogue.bias ? bias : nullptr,
                     epilogue.factor ? factor : nullptr, epilogue.added ? added : nullptr),
            F(), result);
  std::copy_n(result, count, out);
}

/// A vector of sums that begins at `output` of `outputs`, through the epilogue to its place.
HWY_INLINE void finish(V sum, const LinearEpilogue& epilogue, std::int64_t outputs,
                       std::int64_t row, std::int64_t output, Rows y) {
  const std::int64_t left = outputs - output;
  float* out = y.data + row * y.stride + output;
  if (left >= kLanes) {
    const auto at = [&](const float* vector) { return vector ? vector + output : nullptr; };
    const float* added =
        epilogue.added ? epilogue.added + row * epilogue.added_stride + output : nullptr;
    hn::StoreU(finished(sum, epilogue, at(epilogue.bias), at(epilogue.factor), added), F(), out);
  } else if (left > 0) {
    finish_some(sum, epilogue, row, output, left, out);
  }
}

struct Product : LinearProduct<ConstRows> {
  template <int kRows, int kPanels>
  HWY_NOINLINE void block(std::int64_t row, std::int64_t first_panel, std::int64_t ahead) const {
    constexpr int kVectors = kPanels * kPanelVectors;
    const F f;
    V sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
    }
    const float* inputs = x.data + row * x.stride;
    if (weights.dtype() == DType::float32) {
      sum_float32<kRows, kPanels>(weights.inputs(), inputs, x.stride, panel(first_panel),
                                  panel_bytes, fetch(ahead), sum);
    } else {
      sum_bfloat16<kRows, kPanels>(weights.inputs(), inputs, x.stride, panel(first_panel),
                                   panel_bytes, fetch(ahead), sum);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        finish(sum[r][v], epilogue, weights.outputs(), row + r, first_panel * kPanel + v * kLanes,
               y);
      }
    }
  }
};

}  // namespace

void linear_rows(const PackedWeights& weights, std::int64_t rows, ConstRows x, Rows y,
                 const LinearEpilogue& epilogue) {
  const Product product{{weights, x, y, epilogue}};
  for_each_block<kMostRows, kMostPanels>(rows, product.panels, product);
}

void finish_block(const float* sums, int rows, int columns, std::int64_t outputs, std::int64_t row,
                  std::int64_t output, Rows y, const LinearEpilogue& epilogue) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; c += kLanes) {
      finish(hn::Load(F(), sums + r * columns + c), epilogue, outputs, row + r, output + c, y);
    }
  }
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(linear_rows);
HWY_EXPORT(finish_block);

void finish_block(const float* sums, int rows, int columns, std::int64_t outputs, std::int64_t row,
                  std::int64_t output, Rows y, const LinearEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(finish_block)
  (sums, rows, columns, outputs, row, output, y, epilogue);
}

void linear_rows(const PackedWeights& weights, std::int64_t rows, ConstRows x, Rows y,
                 const LinearEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(linear_rows)(weights, rows, x, y, epilogue);
}

}  // namespace sape2::kernels
#endif
