// Products of bfloat16 with AVX-512 BF16. By intrinsics: Debian 12's Highway has no such target.
#include "cpu/linear/bfloat16.h"

#include <algorithm>

#if defined(__x86_64__)

#include "sape2/base/cpu.h"
#include "sape2/base/instruction_trial.h"

#include "cpu/linear/blocks.h"

#include <immintrin.h>

#include <cstring>

#define SAPE2_BFLOAT16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace sape2::kernels {
namespace {

// 24 sums, three rows of weights and one pair of inputs are 28 of 32 registers.
constexpr int kMostRows = 8;
constexpr int kMostPanels = 3;

struct Product : LinearProduct<ConstRows16> {
  template <int kRows, int kPanels>
  SAPE2_BFLOAT16 void block(std::int64_t row, std::int64_t first_panel, std::int64_t ahead) const {
    __m512 sum[kRows][kPanels];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
    }
    const char* first_weights = panel(first_panel);
    const std::uint16_t* inputs = x.data + row * x.stride;
    const std::int64_t pairs = (weights.inputs() + 1) / 2;
    PanelFetch next_weights = fetch(ahead);
    for (std::int64_t i = 0; i < pairs; ++i) {
      next_weights.fetch_line();
      __m512bh column[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        column[p] = (__m512bh)_mm512_load_si512(first_weights + p * panel_bytes + i * 64);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int pair = 0;
        std::memcpy(&pair, inputs + r * x.stride + 2 * i, sizeof pair);
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
    finish_block(sums, kRows, kPanels * kPanel, weights.outputs(), row, first_panel * kPanel, y,
                 epilogue);
  }
};

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
  static const bool does =
      base::features_of(base::read_cpu()).avx512_bf16 && base::succeeds_here(multiplies_rightly);
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
  const Product product{{weights, x, y, epilogue}};
  for_each_block<kMostRows, kMostPanels>(rows, product.panels, product);
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
