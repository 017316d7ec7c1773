#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/version.h>

/// Sizes of tensors that torch.compile may have left open: it first traces with numbers, and where
/// a size changes between calls with a symbol instead. Open the number of images stays; every other
/// size is fixed to what it is in that trace. For ordinary tensors these are just numbers.
namespace sape2::ops {

inline int64_t size_of(const at::Tensor& tensor, int64_t axis) {
  return tensor.sym_size(axis).guard_int(__FILE__, __LINE__);
}

inline int64_t stride_of(const at::Tensor& tensor, int64_t axis) {
  return tensor.sym_stride(axis).guard_int(__FILE__, __LINE__);
}

/// Whether the tensor stands for another one, as while torch.compile or another transformation
/// traces.
inline bool is_traced(const at::Tensor& tensor) {
  const auto keys = tensor.unsafeGetTensorImpl()->key_set();
  return keys.has(c10::DispatchKey::Python) || keys.has(c10::DispatchKey::Functionalize);
}

/// Whether nothing but the tensor's own memory matters: it stands for no other one, and nobody
/// watches what is done with it.
inline bool is_plain(const at::Tensor& tensor) {
#if TORCH_VERSION_MAJOR >= 2
  if (c10::impl::dispatch_mode_enabled()) return false;
#endif
  return !is_traced(tensor);
}

}  // namespace sape2::ops
