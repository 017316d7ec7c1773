// Vector arithmetic shared by the kernels; included once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_MATH_INL_H_
#undef SAPE2_KERNELS_CPU_MATH_INL_H_
#else
#define SAPE2_KERNELS_CPU_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::RebindToSigned<F>;
using V = hn::Vec<F>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));

/// Bounds that keep a NaN. x86 returns the second operand where one is a NaN, Arm the NaN, the
/// portable target the number.
HWY_INLINE V at_least(float bound, V x) {
  const V low = hn::Set(F(), bound);
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#else
  return hn::Max(low, x);
#endif
}

HWY_INLINE V at_most(float bound, V x) {
  const V high = hn::Set(F(), bound);
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#else
  return hn::Min(high, x);
#endif
}

/// e^x to about one ulp, for x up to 88; below -87 it stays at 1.6e-38, and a NaN stays a NaN.
HWY_INLINE V exp_of(V x) {
  const F f;
  const I i;
  x = at_least(-87.0F, x);
  // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
  const V magic = hn::Set(f, 12582912.0F);
  const V shifted = hn::MulAdd(x, hn::Set(f, 1.44269504F), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(f, 0.693145751953125F), x);
  r = hn::NegMulAdd(n, hn::Set(f, 1.428606765330187e-06F), r);
  V p = hn::Set(f, 1.9875691500e-4F);
  p = hn::MulAdd(p, r, hn::Set(f, 1.3981999507e-3F));
  p = hn::MulAdd(p, r, hn::Set(f, 8.3334519073e-3F));
  p = hn::MulAdd(p, r, hn::Set(f, 4.1665795894e-2F));
  p = hn::MulAdd(p, r, hn::Set(f, 1.6666665459e-1F));
  p = hn::MulAdd(p, r, hn::Set(f, 5.0000001201e-1F));
  p = hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, hn::Set(f, 1.0F)));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::BitCast(i, shifted), hn::Set(i, 127)));
  return hn::Mul(p, hn::BitCast(f, power));
}

HWY_INLINE V sigmoid_of(V x) {
  const F f;
  const V one = hn::Set(f, 1.0F);
  return hn::Div(one, hn::Add(one, exp_of(at_most(88.0F, hn::Neg(x)))));
}

HWY_INLINE float sum_of(V x) {
  return hn::GetLane(hn::SumOfLanes(F(), x));
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
