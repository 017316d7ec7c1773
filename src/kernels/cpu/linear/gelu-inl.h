// The exact GELU; included once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_GELU_INL_H_
#undef SAPE2_KERNELS_CPU_GELU_INL_H_
#else
#define SAPE2_KERNELS_CPU_GELU_INL_H_
#endif

#include "cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// x · Φ(x), Φ the normal distribution, as max(x, 0) − |x| · (1 − Φ(|x|)): small numbers are not
/// made by subtracting large ones. The tail 1 − Φ(a) is e^(−a²/2) times a quotient of polynomials,
/// fitted for the smallest largest error of a · (1 − Φ(a)): 3e-10, far below a float's rounding.
HWY_INLINE V gelu_of(V x) {
  const F f;
  const V a = at_most(14.0F, hn::Abs(x));  // beyond, nothing is left of the tail
  V p = hn::Set(f, 1.068873597e-02F);
  p = hn::MulAdd(p, a, hn::Set(f, 9.026418181e-02F));
  p = hn::MulAdd(p, a, hn::Set(f, 3.059269540e-01F));
  p = hn::MulAdd(p, a, hn::Set(f, 0.5F));
  V q = hn::Set(f, 2.685564650e-02F);
  q = hn::MulAdd(q, a, hn::Set(f, 2.250192124e-01F));
  q = hn::MulAdd(q, a, hn::Set(f, 8.053409568e-01F));
  q = hn::MulAdd(q, a, hn::Set(f, 1.409738043F));
  q = hn::MulAdd(q, a, hn::Set(f, 1.0F));
  const V bell = exp_of(hn::Mul(hn::Mul(a, a), hn::Set(f, -0.5F)));
  const V tail = hn::Mul(bell, hn::Div(p, q));
  return hn::NegMulAdd(a, tail, hn::Max(x, hn::Zero(f)));
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
