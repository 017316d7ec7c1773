#pragma once

#include "sape2/kernels/attention.h"

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/params.h"

#include <initializer_list>

/// From a caller's sizes to the kernels', in plain C++.
namespace sape2::kernels::cuda {

// The largest compiled sizes: dispatch_head_size in host/launch.h, dispatch_line_n8 in
// axis_vectors/line.cuh.
inline constexpr int kLargestHead = 128;
inline constexpr int kLongestLine = 128;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

std::size_t element_bytes(DType dtype);

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

}  // namespace sape2::kernels::cuda
