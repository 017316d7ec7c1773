// Products of bfloat16 with AVX-512 BF16. By intrinsics: Debian 12's Highway has no such target.
#include "cpu/linear_bfloat16.h"

#include <algorithm>

#if defined(__x86_64__)

#include "sape2/base/cpu.h"

#include <immintrin.h>

#include <cstring>

#define SAPE2_BFLOAT16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace sape2::kernels {
namespace {

// 24 sums, three rows of weights and one pair of inputs are 28 of 32 registers.
constexpr int kMostRows = 8;
constexpr int kMostPanels = 3;

struct Product {
  const PackedWeights& weights;
  ConstRows16 x;
  Rows y;
  const LinearEpilogue& epilogue;
  std::int64_t panel_bytes;
};

template <int kRows, int kPanels>
SAPE2_BFLOAT16 void block(const Product& product, std::int64_t row, std::int64_t first_panel) {
  __m512 sum[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  const char* panels =
      static_cast<const char*>(product.weights.data()) + first_panel * product.panel_bytes;
  const std::uint16_t* x = product.x.data + row * product.x.stride;
  const std::int64_t pairs = (product.weights.inputs() + 1) / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    __m512bh column[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      column[p] = (__m512bh)_mm512_load_si512(panels + p * product.panel_bytes + i * 64);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int pair = 0;
      std::memcpy(&pair, x + r * product.x.stride + 2 * i, sizeof pair);
      const auto factor = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        sum[r][p] = _mm512_dpbf16_ps(sum[r][p], factor, column[p]);
      }
    }
  }
  alignas(64) float sums[kRows * kPanels * kPanel];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm512_store_ps(sums + (r * kPanels + p) * kPanel, sum[r][p]);
    }
  }
  finish_block(sums, kRows, kPanels * kPanel, product.weights.outputs(), row, first_panel * kPanel,
               product.y, product.epilogue);
}

template <int kPanels, int kRows = kMostRows>
void block_of(int rows, const Product& product, std::int64_t row, std::int64_t first_panel) {
  if (rows == kRows) {
    block<kRows, kPanels>(product, row, first_panel);
  } else if constexpr (kRows > 1) {
    block_of<kPanels, kRows - 1>(rows, product, row, first_panel);
  }
}

/// All rows for a few panels, dealt out evenly.
template <int kPanels>
void all_rows(const Product& product, std::int64_t rows, std::int64_t first_panel) {
  std::int64_t row = 0;
  for (std::int64_t blocks = (rows + kMostRows - 1) / kMostRows; blocks > 0; --blocks) {
    const auto take = static_cast<int>((rows - row + blocks - 1) / blocks);
    block_of<kPanels>(take, product, row, first_panel);
    row += take;
  }
}

/// Numbers whose product is known: (1 + 2^-7)² + 3, which bfloat16 holds and float32 sums exactly.
SAPE2_BFLOAT16 bool multiplies_rightly() {
  const auto a = (__m512bh)_mm512_set1_epi32(0x3F813F81);
  const __m512 sum = _mm512_dpbf16_ps(_mm512_set1_ps(3.0F), a, a);
  alignas(64) float numbers[16];
  _mm512_store_ps(numbers, sum);
  const float expected = 3.0F + 2 * 1.0078125F * 1.0078125F;
  return std::all_of(numbers, numbers + 16, [&](float x) { return x == expected; });
}

SAPE2_BFLOAT16 void round_row(const float* x, std::int64_t width, std::uint16_t* y) {
  for (std::int64_t c = 0; c < width; c += 16) {
    const std::int64_t left = std::min<std::int64_t>(16, width - c);
    const auto mask = static_cast<__mmask16>((1U << left) - 1);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + c));
    _mm256_mask_storeu_epi16(y + c, mask, (__m256i)rounded);
  }
}

}  // namespace

bool cpu_multiplies_bfloat16() {
  static const bool does = base::features_of(base::read_cpu()).avx512_bf16 && multiplies_rightly();
  return does;
}

void round_rows(std::int64_t rows, std::int64_t width, ConstRows x, Rows16 y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::uint16_t* out = y.data + r * y.stride;
    round_row(x.data + r * x.stride, width, out);
    if (width % 2) out[width] = 0;
  }
}

void linear_bfloat16_rows(const PackedWeights& weights, std::int64_t rows, ConstRows16 x, Rows y,
                          const LinearEpilogue& epilogue) {
  const std::int64_t panels = panels_of(weights.outputs());
  const Product product{weights, x, y, epilogue,
                        static_cast<std::int64_t>(weights.bytes()) / panels};
  std::int64_t panel = 0;
  for (std::int64_t groups = (panels + kMostPanels - 1) / kMostPanels; groups > 0; --groups) {
    const std::int64_t take = (panels - panel + groups - 1) / groups;
    if (take == 1) all_rows<1>(product, rows, panel);
    if (take == 2) all_rows<2>(product, rows, panel);
    if (take == 3) all_rows<3>(product, rows, panel);
    panel += take;
  }
}

}  // namespace sape2::kernels

#else

namespace sape2::kernels {

bool cpu_multiplies_bfloat16() {
  return false;
}
void round_rows(std::int64_t, std::int64_t, ConstRows, Rows16) {}
void linear_bfloat16_rows(const PackedWeights&, std::int64_t, ConstRows16, Rows,
                          const LinearEpilogue&) {}

}  // namespace sape2::kernels

#endif
