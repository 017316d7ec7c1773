#include "ops/kernel_views.h"

#include <ATen/Parallel.h>

namespace sape2::ops {

void TorchExecutor::parallel_for(int64_t count, const Body& body) const {
  at::parallel_for(0, count, /*grain_size=*/1, body);
}

kernels::Shape kernel_shape(const at::Tensor& q, const Grid& grid) {
  return {q.size(0), q.size(1), grid.rows, grid.cols, grid.prefix, q.size(3)};
}

kernels::DType kernel_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? kernels::DType::bfloat16 : kernels::DType::float32;
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

at::Tensor as_floats(const at::Tensor& parameter) {
  return parameter.to(at::kFloat).contiguous();
}

at::Tensor as_floats_per_head(const at::Tensor& value, double standard, const at::Tensor& q) {
  const int64_t heads = q.size(1);
  if (!value.defined()) return at::full({heads}, standard, at::TensorOptions().dtype(at::kFloat));
  return as_floats(value.expand({heads}));
}

float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

at::Tensor like_parameter(const at::Tensor& gradient, const at::Tensor& parameter) {
  const auto summed = parameter.dim() == 0 ? gradient.sum() : gradient;
  return summed.to(parameter.scalar_type());
}

}  // namespace sape2::ops
