#pragma once

#include "kernels/cuda/common/element.cuh"

/// Four neighbours at a time, as float32 in registers.
namespace sape2::kernels::cuda {

struct Four {
  float x[4];
};

/// Four neighbours as they lie in memory: half the registers of Four in 16-bit types.
template <class T>
using Bits4 = std::conditional_t<kIsFp32<T>, float4, uint2>;

template <class T>
__device__ Bits4<T> load_bits(const T* from) {
  return *reinterpret_cast<const Bits4<T>*>(from);
}

template <class T>
__device__ Four widened(const Bits4<T>& bits) {
  if constexpr (kIsFp32<T>) {
    return {bits.x, bits.y, bits.z, bits.w};
  } else {
    const float2 low = unpack<T>(bits.x), high = unpack<T>(bits.y);
    return {low.x, low.y, high.x, high.y};
  }
}

template <class T>
__device__ Four load4(const T* from) {
  return widened<T>(load_bits(from));
}

template <class T>
__device__ void store4(T* to, const Four& v) {
  if constexpr (kIsFp32<T>) {
    *reinterpret_cast<float4*>(to) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
  } else {
    *reinterpret_cast<uint2*>(to) = make_uint2(pack<T>(v.x[0], v.x[1]), pack<T>(v.x[2], v.x[3]));
  }
}

/// As they are once stored in T.
template <class T>
__device__ Four rounded(Four v) {
  for (float& x : v.x) x = widen(narrow<T>(x));
  return v;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

}  // namespace sape2::kernels::cuda
