#include "ops/backends/kernel_views.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

#include <algorithm>

namespace sape2::ops {

void TorchExecutor::parallel_for(int64_t count, const Body& body) const {
  at::parallel_for(0, count, /*grain_size=*/1, body);
}

kernels::Shape kernel_shape(const at::Tensor& q, const Grid& grid) {
  return {q.size(0), q.size(1), grid.rows, grid.cols, grid.prefix, q.size(3)};
}

kernels::DType kernel_type(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kBFloat16 ? kernels::DType::bfloat16
         : type == at::kHalf   ? kernels::DType::float16
                               : kernels::DType::float32;
}

at::Tensor with_contiguous_rows(const at::Tensor& tensor) {
  return tensor.stride(3) == 1 || tensor.size(3) == 1 ? tensor : tensor.contiguous();
}

kernels::ConstView const_view(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

kernels::View view(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

// Small calls wait for the host, and every trip through the dispatcher costs a good part of a
// microsecond, even one that finds nothing to do.
at::Tensor as_floats(const at::Tensor& parameter) {
  const bool is_float = parameter.scalar_type() == at::kFloat;
  return (is_float ? parameter : parameter.to(at::kFloat)).contiguous();
}

at::Tensor as_floats_per_head(const at::Tensor& value, const at::Tensor& q) {
  return as_floats(value.dim() == 0 ? value.expand({q.size(1)}) : value);
}

at::Tensor empty_floats(at::IntArrayRef shape) {
  return at::detail::empty_cpu(shape, at::kFloat);
}

at::Tensor floats_per_head_or(double standard, const at::Tensor& value, const at::Tensor& q) {
  if (value.defined()) return as_floats_per_head(value, q);
  const at::Tensor same = empty_floats({q.size(1)});
  std::fill_n(same.data_ptr<float>(), same.numel(), static_cast<float>(standard));
  return same;
}

void* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

at::Tensor like_parameter(const at::Tensor& gradient, const at::Tensor& parameter) {
  const auto summed = parameter.dim() == 0 ? gradient.sum() : gradient;
  const auto type = parameter.scalar_type();
  return summed.scalar_type() == type ? summed : summed.to(type);
}

}  // namespace sape2::ops
