#include "ops/reference/reference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace sape2::ops::reference {
namespace {

template <class Number>
void fill(const at::Tensor& from, const at::Tensor& to) {
  const Number* const x = from.data_ptr<Number>();
  Number* const y = to.data_ptr<Number>();
  at::parallel_for(0, from.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = 1 / (1 + std::exp(-x[i]));
  });
}

struct Sigmoid : torch::autograd::Function<Sigmoid> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::Tensor result = at::empty_like(x, at::MemoryFormat::Contiguous);
    if (x.scalar_type() == at::kDouble) {
      fill<double>(x.contiguous(), result);
    } else {
      fill<float>(x.contiguous(), result);
    }
    context->save_for_backward({result});
    return result;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& grads) {
    const at::Tensor y = context->get_saved_variables()[0];
    return {grads[0] * y * (1 - y)};
  }
};

}  // namespace

at::Tensor scalar_sigmoid(const at::Tensor& x) {
  return x.is_cpu() ? Sigmoid::apply(x) : at::sigmoid(x);
}

}  // namespace sape2::ops::reference
