#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

/// The element types the kernels are compiled for, and how they meet float32.
namespace sape2::kernels::cuda {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

/// A float32 whose products may be rounded to tf32's eleven significant bits.
struct Tf32 {
  float value;
  __device__ operator float() const { return value; }
};

template <class T>
inline constexpr bool kIsFp32 = sizeof(T) == 4;

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(Tf32 x) {
  return x.value;
}
__device__ inline float widen(Bf16 x) {
  return __bfloat162float(x);
}
__device__ inline float widen(Fp16 x) {
  return __half2float(x);
}

template <class T>
__device__ T narrow(float x) {
  if constexpr (kIsFp32<T>) {
    return T{x};
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return __float2bfloat16_rn(x);
  } else {
    return __float2half_rn(x);
  }
}

/// Two neighbours in one register, `a` in the low half.
template <class T>
__device__ std::uint32_t pack(float a, float b) {
  std::uint32_t bits;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  }
  return bits;
}

template <class T>
__device__ float2 unpack(std::uint32_t bits) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  }
}

/// Products of two pairs, rounded.
template <class T>
__device__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    const auto product = __hmul2(reinterpret_cast<const __nv_bfloat162&>(a),
                                 reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const std::uint32_t&>(product);
  } else {
    const auto product =
        __hmul2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const std::uint32_t&>(product);
  }
}

/// The greater ones of two pairs; numbers are greater than what is none.
template <class T>
__device__ std::uint32_t greater_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t greater;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(greater) : "r"(a), "r"(b));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(greater) : "r"(a), "r"(b));
  }
  return greater;
}

/// Numbers that became infinite for want of range are the greatest again; what is no number stays
/// none.
template <class T>
__device__ std::uint32_t within_range(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, Fp16>) {
    asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x7bff7bffu));
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0xfbfffbffu));
  }
  return pair;
}

/// The same for a number not yet rounded.
template <class T>
__device__ float within_range(float x) {
  if constexpr (std::is_same_v<T, Fp16>) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(65504.0F));
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-65504.0F));
  }
  return x;
}

/// Sums of two pairs, rounded.
template <class T>
__device__ std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    const auto sum = __hadd2(reinterpret_cast<const __nv_bfloat162&>(a),
                             reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const std::uint32_t&>(sum);
  } else {
    const auto sum =
        __hadd2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const std::uint32_t&>(sum);
  }
}

}  // namespace sape2::kernels::cuda
