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

/// A matrix that TMA reads as it lies.
bool is_plain(const Tensor& x) {
  constexpr std::uintptr_t kAlignment = 16;
  return x.scalar_type() == at::kBFloat16 && x.is_contiguous() &&
         reinterpret_cast<std::uintptr_t>(data(x)) % kAlignment == 0;
}

std::vector<cuda::WeightGradient> kernel_gradients(const std::vector<WeightGradient>& gradients) {
  std::vector<cuda::WeightGradient> all;
  std::transform(gradients.begin(), gradients.end(), std::back_inserter(all), [](const auto& g) {
    return cuda::WeightGradient{.rows = g.dy.size(0),
                                .outputs = g.dy.size(1),
                                .inputs = g.x.size(1),
                                .dy = data(g.dy),
                                .x = data(g.x),
                                .out = g.out.mutable_data()};
  });
  return all;
}

}  // namespace

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
