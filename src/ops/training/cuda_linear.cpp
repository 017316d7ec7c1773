#include "sape2/kernels/cuda_training.h"

#include "ops/backends/kernel_views.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <iterator>

namespace sape2::ops::fused {
namespace {

namespace cuda = kernels::cuda;
using at::Tensor;

void* stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}

/// Whether TMA reads it as it lies.
bool is_plain(const Tensor& x) {
  constexpr std::uintptr_t kAlignment = 16;
  return x.scalar_type() == at::kBFloat16 && x.is_contiguous() &&
         reinterpret_cast<std::uintptr_t>(data(x)) % kAlignment == 0;
}
/// The tensor itself where it is, otherwise a copy.
Tensor plain(const Tensor& x) {
  return is_plain(x) ? x : x.clone(at::MemoryFormat::Contiguous);
}

std::vector<cuda::WeightGradient> kernel_gradients(const std::vector<WeightGradient>& gradients) {
  std::vector<cuda::WeightGradient> all;
  std::transform(gradients.begin(), gradients.end(), std::back_inserter(all), [](const auto& g) {
    return cuda::WeightGradient{.rows = g.dy.size(0),
                                .outputs = g.dy.size(1),
                                .inputs = g.x.size(1),
                                .dy = data(g.dy),
                                .x = data(g.x),
                                .out = g.out.data_ptr().get()};
  });
  return all;
}

}  // namespace

bool linear_serves(const Tensor& x, int64_t depth, int64_t width) {
  if (x.scalar_type() != at::kBFloat16 || x.numel() == 0) return false;
  const c10::cuda::CUDAGuard guard(x.device());
  return cuda::linear_serves(x.numel() / x.size(-1), depth, width);
}

Activated linear_gelu(const Tensor& given, const Tensor& given_weight, const Tensor& bias,
                      bool differentiates) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = plain(given), weight = plain(given_weight), b = plain(bias);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  Activated to{at::empty(sizes, x.options()),
               differentiates ? at::empty(sizes, x.options()) : Tensor()};
  cuda::linear_gelu({.rows = x.numel() / x.size(-1),
                     .inputs = weight.size(1),
                     .outputs = weight.size(0),
                     .x = data(x),
                     .weight = data(weight),
                     .bias = data(b),
                     .out = data(to.out),
                     .derivative = data(to.derivative)},
                    stream());
  return to;
}

std::pair<Tensor, Tensor> linear_gelu_backward(const Tensor& given, const Tensor& given_weight,
                                               const Tensor& derivative) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor dy = plain(given), weight = plain(given_weight);
  const int64_t rows = dy.numel() / dy.size(-1), width = weight.size(1);
  Tensor dx = at::empty_like(derivative), dbias = at::empty({width}, dy.options());
  const Tensor workspace =
      at::empty({static_cast<int64_t>(cuda::column_sums_workspace(rows, width, 1))},
                dy.options().dtype(at::kByte));
  cuda::linear_gelu_backward({.rows = rows,
                              .inputs = width,
                              .outputs = weight.size(0),
                              .dy = data(dy),
                              .weight = data(weight),
                              .derivative = data(derivative),
                              .dx = data(dx),
                              .dbias = data(dbias),
                              .workspace = data(workspace)},
                             stream());
  return {dx, dbias};
}

bool weight_gradient_serves(const Tensor& dy, const Tensor& x) {
  if (!is_plain(dy) || !is_plain(x)) return false;
  const c10::cuda::CUDAGuard guard(dy.device());
  return cuda::weight_gradient_serves(dy.size(0), dy.size(1), x.size(1));
}

bool weight_gradients_suffice(const std::vector<WeightGradient>& gradients) {
  const c10::cuda::CUDAGuard guard(gradients.front().dy.device());
  const auto all = kernel_gradients(gradients);
  return cuda::weight_gradients_suffice(all.data(), static_cast<int64_t>(all.size()));
}

void weight_gradients(const std::vector<WeightGradient>& gradients) {
  const c10::cuda::CUDAGuard guard(gradients.front().dy.device());
  const auto all = kernel_gradients(gradients);
  cuda::weight_gradients(all.data(), static_cast<int64_t>(all.size()), stream());
}

}  // namespace sape2::ops::fused
