#pragma once

#include "held.h"

namespace sape2::kernels::test {

/// Heads of q, k and v either as thirds of a token's row, or each contiguous, one after the other.
struct Place {
  Shape shape;
  bool packed = false;

  std::size_t size() const {
    return static_cast<std::size_t>(3 * shape.images * shape.heads * shape.tokens() *
                                    shape.head_size);
  }
  std::int64_t start(int tensor) const {
    const std::int64_t width = shape.heads * shape.head_size;
    return packed ? tensor * width : tensor * shape.images * shape.tokens() * width;
  }
  View strides() const {
    const std::int64_t width = shape.heads * shape.head_size;
    if (packed) return {nullptr, 3 * width * shape.tokens(), shape.head_size, 3 * width};
    return {nullptr, width * shape.tokens(), shape.head_size * shape.tokens(), shape.head_size};
  }
  std::size_t at(int tensor, std::int64_t image, std::int64_t head, std::int64_t token) const {
    const View v = strides();
    return static_cast<std::size_t>(start(tensor) + image * v.image_stride + head * v.head_stride +
                                    token * v.token_stride);
  }
  View view(const Held& held, int tensor, DType type) const {
    View v = strides();
    v.data = static_cast<unsigned char*>(held.data()) + start(tensor) * bytes_of(type);
    return v;
  }
  ConstView const_view(const Held& held, int tensor, DType type) const {
    const View v = view(held, tensor, type);
    return {v.data, v.image_stride, v.head_stride, v.token_stride};
  }
};

}  // namespace sape2::kernels::test
