#pragma once

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <optional>

namespace sape2::ops {

// LibTorch 1 has an optional of its own at the dispatcher's boundary; LibTorch 2 uses the standard
// one.
#if TORCH_VERSION_MAJOR >= 2
template <typename T>
using Optional = std::optional<T>;
#else
template <typename T>
using Optional = c10::optional<T>;
#endif

using OptionalTensor = Optional<at::Tensor>;

/// An undefined tensor stands for "not given" inside the library.
inline at::Tensor or_undefined(const OptionalTensor& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

inline OptionalTensor or_nothing(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}

}  // namespace sape2::ops
