#pragma once

#include "kernels/cuda/common/element.cuh"

#include <type_traits>

/// The normal distribution, as GELU needs it.
namespace sape2::kernels::cuda {

inline constexpr float kRootHalf = 0.70710678118654752F;
inline constexpr float kInverseRootTwoPi = 0.39894228040143268F;

/// The share of a normal distribution below x, and its density.
struct Normal {
  float below, density;
};

// In bfloat16, erf by Abramowitz and Stegun's 7.1.26 (error under 1.5e-7), which shares the
// density's exponential; the library's erff would take longer than memory does.
template <class T>
__device__ Normal normal_at(float x) {
  if constexpr (std::is_same_v<T, Bf16>) {
    constexpr float kRootHalfLog2E = 0.84932180028801907F;
    const float scaled = kRootHalfLog2E * x;
    float bell, t;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(bell) : "f"(-scaled * scaled));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.3275911F * kRootHalf, fabsf(x), 1.0F)));
    const float polynomial =
        t * (0.127414796F +
             t * (-0.142248368F + t * (0.7107068705F + t * (-0.7265760135F + t * 0.5307027145F))));
    const float tail = polynomial * bell;
    return {x < 0.0F ? tail : 1.0F - tail, kInverseRootTwoPi * bell};
  } else {
    const float bell = __expf(-0.5F * x * x);
    return {0.5F * (1.0F + erff(x * kRootHalf)), kInverseRootTwoPi * bell};
  }
}

}  // namespace sape2::kernels::cuda
