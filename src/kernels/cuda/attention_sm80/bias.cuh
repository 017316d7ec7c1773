#pragma once

#include "kernels/cuda/attention_sm80/direct_bias.cuh"
#include "kernels/cuda/attention_sm80/distance_bias.cuh"
#include "kernels/cuda/host/params.h"

#include <type_traits>

/// Which bias a kernel's tiles get.
namespace sape2::kernels::cuda::sm80 {

struct NoBias {
  __device__ NoBias(const AttentionParams&, std::int64_t, int, int, unsigned char*) {}
};

/// `KeysAlongRows`: a tile's rows are keys and its columns queries.
template <class T, int N8, BiasForm Form, bool KeysAlongRows = false>
using BiasOf = std::conditional_t<
    Form == BiasForm::none, NoBias,
    std::conditional_t<kIsDistance<Form>,
                       DistanceTiles<T, N8, Form == BiasForm::distance_pair ? 2 : 1>,
                       std::conditional_t<KeysAlongRows, DirectColumns<T, N8>, DirectRows<T, N8>>>>;

/// One expression for both directions, so that its rounding cancels between them.
__device__ inline float logit_of(float score, float scale, float bias, float factor) {
  return __fmaf_rn(bias, factor, __fmul_rn(score, scale));
}

}  // namespace sape2::kernels::cuda::sm80
