#include "sape2/kernels/cuda_training.h"

#include "ops/backends/kernel_views.h"
#include "ops/training/gather.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

namespace sape2::ops {
namespace {

namespace cuda = kernels::cuda;
using at::Tensor;

void* stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}

Tensor scratch(std::size_t bytes, const Tensor& like) {
  return at::empty({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte));
}

int64_t rows_of(const Tensor& x) {
  return x.numel() / x.size(-1);
}

Tensor contiguous(const Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

cuda::ResidualNorm norm_params(const fused::NormArguments& a) {
  return {.rows = rows_of(a.x),
          .width = a.x.size(-1),
          .rows_per_image = rows_of(a.x) / std::max<int64_t>(1, a.x.size(0)),
          .dtype = kernel_type(a.x),
          .epsilon = static_cast<float>(a.epsilon),
          .x = data(a.x),
          .branch = data(a.branch.value),
          .branch_bias = data(a.branch.bias),
          .factor = floats(a.branch.factor),
          .weight = data(a.weight),
          .bias = data(a.bias)};
}

fused::NormArguments contiguous(const fused::NormArguments& a) {
  return {contiguous(a.x),
          {contiguous(a.branch.value), contiguous(a.branch.bias), contiguous(a.branch.factor)},
          contiguous(a.weight),
          contiguous(a.bias),
          a.epsilon};
}

}  // namespace

namespace fused {

bool available() {
  return true;
}

Normed add_and_norm(const NormArguments& given) {
  const NormArguments a = contiguous(given);
  const c10::cuda::CUDAGuard guard(a.x.device());
  Normed to{a.branch.value.defined() ? at::empty_like(a.x) : a.x, at::empty_like(a.x),
            at::empty({rows_of(a.x), 2}, a.x.options().dtype(at::kFloat))};
  cuda::residual_norm_forward(norm_params(a),
                              {data(to.sum), data(to.normed), floats(to.statistics)}, stream());
  return to;
}

NormGradients add_and_norm_backward(const NormArguments& given, const Tensor& sum,
                                    const Tensor& statistics, const Tensor& dsum,
                                    const Tensor& dnormed) {
  const NormArguments a = contiguous(given);
  const c10::cuda::CUDAGuard guard(a.x.device());
  const Tensor of_sum = contiguous(dsum), of_normed = contiguous(dnormed);
  const bool scaled = a.branch.factor.defined();
  NormGradients to{
      .x = at::empty_like(sum),
      .branch = scaled ? at::empty_like(sum) : Tensor(),
      .branch_bias = a.branch.bias.defined() ? at::empty_like(a.branch.bias) : Tensor(),
      .weight = at::empty_like(a.weight),
      .bias = at::empty_like(a.bias)};
  const Tensor workspace = scratch(cuda::column_sums_workspace(rows_of(sum), sum.size(-1), 3), sum);
  cuda::residual_norm_backward(norm_params(a), data(sum), floats(statistics),
                               {data(of_sum), data(of_normed), data(to.x), data(to.branch),
                                data(to.weight), data(to.bias), data(to.branch_bias)},
                               data(workspace), stream());
  if (!scaled) to.branch = to.x;
  return to;
}

Tensor gelu(const Tensor& given, const Tensor& bias) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous(), b = contiguous(bias);
  Tensor out = at::empty_like(x);
  cuda::bias_gelu_forward(kernel_type(x), rows_of(x), x.size(-1), data(x), data(b), data(out),
                          stream());
  return out;
}

std::pair<Tensor, Tensor> gelu_backward(const Tensor& given, const Tensor& bias,
                                        const Tensor& gradient) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous(), b = contiguous(bias), dout = gradient.contiguous();
  Tensor dx = at::empty_like(x);
  Tensor dbias = b.defined() ? at::empty_like(b) : Tensor();
  const Tensor workspace = scratch(cuda::column_sums_workspace(rows_of(x), x.size(-1), 1), x);
  cuda::bias_gelu_backward(kernel_type(x), rows_of(x), x.size(-1), data(x), data(b), data(dout),
                           data(dx), data(dbias), data(workspace), stream());
  return {dx, dbias};
}

Tensor column_sums(const Tensor& given) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous();
  Tensor out = at::empty({x.size(-1)}, x.options());
  const Tensor workspace = scratch(cuda::column_sums_workspace(rows_of(x), x.size(-1), 1), x);
  cuda::column_sums(kernel_type(x), rows_of(x), x.size(-1), data(x), data(out), data(workspace),
                    stream());
  return out;
}

std::pair<Tensor, Tensor> cross_entropy(const Tensor& given, const Tensor& targets, double scale) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor logits = given.contiguous(), wanted = targets.contiguous();
  Tensor loss = at::empty({}, logits.options().dtype(at::kFloat));
  Tensor dlogits = at::empty_like(logits);
  cuda::cross_entropy(kernel_type(logits), logits.size(0), logits.size(1), data(logits),
                      floats(wanted), static_cast<float>(scale), floats(loss), data(dlogits),
                      stream());
  return {loss, dlogits};
}

}  // namespace fused

void gather_on_gpu(const std::vector<GradientPiece>& pieces, const Tensor& flat, bool add) {
  const c10::cuda::CUDAGuard guard(flat.device());
  std::vector<cuda::GradientPiece> views;
  std::vector<Tensor> alive;
  for (const GradientPiece& piece : pieces) {
    alive.push_back(piece.gradient.contiguous());
    views.push_back({data(alive.back()), piece.offset, alive.back().numel(),
                     alive.back().scalar_type() == at::kFloat});
  }
  cuda::gather_gradients(views.data(), static_cast<int64_t>(views.size()), floats(flat), add,
                         stream());
}

void adam_pass(const AdamPass& p) {
  const c10::cuda::CUDAGuard guard(p.weights.device());
  cuda::adam_pass({.count = p.weights.numel(),
                   .decayed = p.decayed,
                   .rounded = p.copy.defined() ? p.copy.numel() : 0,
                   .beta1 = static_cast<float>(p.beta1),
                   .beta2 = static_cast<float>(p.beta2),
                   .epsilon = static_cast<float>(p.epsilon),
                   .gradient_decay = static_cast<float>(p.gradient_decay),
                   .weights = floats(p.weights),
                   .mean = floats(p.mean),
                   .square = floats(p.square),
                   .average = floats(p.average),
                   .copy = data(p.copy),
                   .gradients = floats(p.gradients),
                   .gradient_scale = floats(p.gradient_scale),
                   .numbers = floats(p.numbers)},
                  stream());
}

Tensor clipping_norm(const Tensor& flat, double largest) {
  const c10::cuda::CUDAGuard guard(flat.device());
  Tensor norm = at::empty({2}, flat.options());
  const Tensor workspace = scratch(cuda::norm_workspace(flat.numel()), flat);
  cuda::clipping_norm(floats(flat), flat.numel(), static_cast<float>(largest), floats(norm),
                      data(workspace), stream());
  return norm;
}

}  // namespace sape2::ops
