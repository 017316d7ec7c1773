#pragma once

#include "sape2/kernels/attention.h"
#include "sape2/kernels/executor.h"

#include "ops/arguments.h"

#include <ATen/ATen.h>

/// Tensors as the framework-free kernels see them: plain pointers, strides and structs.
namespace sape2::ops {

/// LibTorch's own threads.
class TorchExecutor final : public kernels::Executor {
 public:
  void parallel_for(int64_t count, const Body& body) const override;
};

kernels::Shape kernel_shape(const at::Tensor& q, const Grid& grid);
kernels::DType kernel_type(const at::Tensor& tensor);

/// The tensor itself where its last axis is contiguous, otherwise a copy for which that holds.
at::Tensor with_contiguous_rows(const at::Tensor& tensor);
kernels::ConstView const_view(const at::Tensor& tensor);
/// An undefined tensor gives a view that means "not wanted".
kernels::View view(const at::Tensor& tensor);

/// A parameter as contiguous float32; one number, or one per head, as (h).
at::Tensor as_floats(const at::Tensor& parameter);
at::Tensor as_floats_per_head(const at::Tensor& value, const at::Tensor& q);

/// New float32 numbers on the CPU; as (h) those of `value` or, where it is not given, a default.
at::Tensor empty_floats(at::IntArrayRef shape);
at::Tensor floats_per_head_or(double standard, const at::Tensor& value, const at::Tensor& q);

/// An undefined tensor's data is null.
void* data(const at::Tensor& tensor);
float* floats(const at::Tensor& tensor);

/// A float32 gradient in the type of `parameter`, summed over heads where that is one number.
at::Tensor like_parameter(const at::Tensor& gradient, const at::Tensor& parameter);

}  // namespace sape2::ops
