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

/// x · Φ(x), Φ the normal distribution. Φ(x) − ½ is x times a quotient of polynomials in x², fitted
/// for the smallest largest error on |x| ≤ 5.5: 8e-9, a sixth of a float's rounding. Beyond, it is
/// ±½ to the last bit.
HWY_INLINE V gelu_of(V x) {
  const F f;
  const V t = hn::Mul(x, x);
  V p = hn::Set(f, 2.274935004e-08F);
  p = hn::MulAdd(p, t, hn::Set(f, 6.352108207e-06F));
  p = hn::MulAdd(p, t, hn::Set(f, 1.688255957e-04F));
  p = hn::MulAdd(p, t, hn::Set(f, 4.677260268e-03F));
  p = hn::MulAdd(p, t, hn::Set(f, 3.385264775e-02F));
  p = hn::MulAdd(p, t, hn::Set(f, 3.989422346e-01F));
  V q = hn::Set(f, 1.197502765e-06F);
  q = hn::MulAdd(q, t, hn::Set(f, 7.364742621e-05F));
  q = hn::MulAdd(q, t, hn::Set(f, 1.884444552e-03F));
  q = hn::MulAdd(q, t, hn::Set(f, 2.864587100e-02F));
  q = hn::MulAdd(q, t, hn::Set(f, 2.515219226e-01F));
  q = hn::MulAdd(q, t, hn::Set(f, 1.0F));
  const V half = hn::Set(f, 0.5F);
  const V inside = hn::Mul(x, hn::Div(p, q));
  const V beyond = hn::CopySign(half, x);
  const V centred = hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Set(f, 5.5F)), beyond, inside);
  return hn::Mul(x, hn::Add(half, centred));
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
