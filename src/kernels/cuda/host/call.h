#pragma once

#include "sape2/kernels/cuda.h"
#include "sape2/kernels/dispatch.h"

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/geometry.h"

#include <cuda_runtime.h>

/// What the entry points share: checks, and from DType to a compiled type.
namespace sape2::kernels::cuda {

/// Each throws Error if numbers make no sense; check_call also if `refusal` has something to say.
void check_shape(const Shape& shape);
void check_call(const Call& call);
void check_sets(std::int64_t sets);
void check_encoding(const Encoding& encoding);

inline cudaStream_t stream_of(const Launch& launch) {
  return static_cast<cudaStream_t>(launch.stream);
}

/// Calls use(T()) with the compiled type.
template <class Use>
void dispatch_type(DType dtype, Use use) {
  switch (dtype) {
    case DType::float32:
      return use(float());
    case DType::bfloat16:
      return use(Bf16());
    case DType::float16:
      return use(Fp16());
  }
}

}  // namespace sape2::kernels::cuda
