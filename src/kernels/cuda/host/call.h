#pragma once

#include "sape2/kernels/cuda.h"

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/params.h"

#include <cuda_runtime.h>

#include <initializer_list>

/// What the entry points share: checks, geometry, and the way from DType to a compiled type.
namespace sape2::kernels::cuda {

inline constexpr int kLargestHead = 128;
inline constexpr int kLongestLine = 128;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

std::size_t element_bytes(DType dtype);

/// Throws Error where `refusal` has something to say or numbers make no sense.
void check_shape(const Shape& shape, DType dtype);
void check_shape(const Shape& shape, DType dtype, Form form, std::int64_t sets);
void check_encoding(const Encoding& encoding);

/// `views`: data and strides of all (images, heads, tokens, head size) tensors.
Geometry geometry_of(const Shape& shape, DType dtype, std::initializer_list<ConstView> views);
inline ConstView as_const(const View& view) {
  return {view.data, view.image_stride, view.head_stride, view.token_stride};
}

inline int sets_of(const Encoding& encoding) {
  return encoding.source == Source::qk ? 2 : 1;
}
axis_vectors::Params axis_vector_params(const Geometry& geometry, const ConstView& q,
                                        const ConstView& k, const Encoding& encoding);

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
