// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/gemm.h"
#include "cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

// A block of kMaxRows × kMaxVectors sums stays in registers.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
constexpr int kMaxRows = 6;
constexpr int kMaxVectors = 2;
#else
constexpr int kMaxRows = 6;
constexpr int kMaxVectors = 4;
#endif

template <bool kTransposed, int kRows, int kVectors>
HWY_NOINLINE void block(int k, const float* HWY_RESTRICT a, int lda, const float* HWY_RESTRICT b,
                        int ldb, float* HWY_RESTRICT c, int ldc, bool add) {
  const F f;
  const std::ptrdiff_t row_step = kTransposed ? 1 : lda;
  const std::ptrdiff_t k_step = kTransposed ? lda : 1;
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
  }
  for (int p = 0; p < k; ++p) {
    V column[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) column[v] = hn::LoadU(f, b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(f, a[r * row_step]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, column[v], sum[r][v]);
    }
    a += k_step;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* out = c + static_cast<std::ptrdiff_t>(r) * ldc;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V value = sum[r][v];
      if (add) value = hn::Add(value, hn::LoadU(f, out + v * kLanes));
      hn::StoreU(value, f, out + v * kLanes);
    }
  }
}

template <bool kTransposed, int kVectors>
HWY_INLINE void rows_of_blocks(int m, int k, const float* a, int lda, const float* b, int ldb,
                               float* c, int ldc, bool add, PrefetchQueue* queue) {
  const std::ptrdiff_t row_step = kTransposed ? 1 : lda;
  while (m > 0) {
    int rows = 1;
    if (m >= kMaxRows) {
      rows = kMaxRows;
      block<kTransposed, kMaxRows, kVectors>(k, a, lda, b, ldb, c, ldc, add);
    } else if (m >= 4) {
      rows = 4;
      block<kTransposed, 4, kVectors>(k, a, lda, b, ldb, c, ldc, add);
    } else if (m >= 2) {
      rows = 2;
      block<kTransposed, 2, kVectors>(k, a, lda, b, ldb, c, ldc, add);
    } else {
      block<kTransposed, 1, kVectors>(k, a, lda, b, ldb, c, ldc, add);
    }
    if (queue) queue->fetch_some();
    m -= rows;
    a += rows * row_step;
    c += static_cast<std::ptrdiff_t>(rows) * ldc;
  }
}

template <bool kTransposed>
HWY_INLINE void any_gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb,
                         float* c, int ldc, bool add, PrefetchQueue* queue) {
  // Vectors are dealt out evenly: 5 = 3 + 2, not 4 + 1, which would starve the last block.
  int vectors = n / kLanes;
  int groups = (vectors + kMaxVectors - 1) / kMaxVectors;
  for (; groups > 0; --groups) {
    const int take = (vectors + groups - 1) / groups;
    if (take == 1) rows_of_blocks<kTransposed, 1>(m, k, a, lda, b, ldb, c, ldc, add, queue);
    if (take == 2) rows_of_blocks<kTransposed, 2>(m, k, a, lda, b, ldb, c, ldc, add, queue);
    if constexpr (kMaxVectors > 2) {
      if (take == 3) rows_of_blocks<kTransposed, 3>(m, k, a, lda, b, ldb, c, ldc, add, queue);
      if (take == 4) rows_of_blocks<kTransposed, 4>(m, k, a, lda, b, ldb, c, ldc, add, queue);
    }
    b += take * kLanes;
    c += take * kLanes;
    vectors -= take;
  }
}

}  // namespace

void gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc,
          bool add, PrefetchQueue* queue) {
  any_gemm<false>(m, n, k, a, lda, b, ldb, c, ldc, add, queue);
}

void gemm_transposed(int m, int n, int k, const float* a, int lda, const float* b, int ldb,
                     float* c, int ldc, bool add, PrefetchQueue* queue) {
  any_gemm<true>(m, n, k, a, lda, b, ldb, c, ldc, add, queue);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
