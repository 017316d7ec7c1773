// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_GEMM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_GEMM_H_
#undef SAPE2_KERNELS_CPU_GEMM_H_
#else
#define SAPE2_KERNELS_CPU_GEMM_H_
#endif

#include "cpu/prefetch.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// C = A·B, or C += A·B; `n` is a multiple of kPad. Every entry is the sum over k from 0 upwards,
/// whatever its place in the matrix: equal rows give bitwise equal results. Meanwhile `queue`,
/// where given, fetches what is needed next.
void gemm(int m, int n, int k,          //
          const float* a, int lda,      // (m, k)
          const float* b, int ldb,      // (k, n)
          float* c, int ldc, bool add,  // (m, n)
          PrefetchQueue* queue = nullptr);

/// The same with A given transposed.
void gemm_transposed(int m, int n, int k,          //
                     const float* a, int lda,      // (k, m)
                     const float* b, int ldb,      // (k, n)
                     float* c, int ldc, bool add,  // (m, n)
                     PrefetchQueue* queue = nullptr);

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
