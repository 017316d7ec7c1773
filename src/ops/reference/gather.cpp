#include "ops/reference/reference.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sape2::ops::reference {
namespace {

using Tensors = std::vector<at::Tensor>;

/// LibTorch's own backward pass adds atomically on a GPU, in another order each time. Column by
/// column no two numbers meet.
struct GatherInOrder : torch::autograd::Function<GatherInOrder> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* context, const at::Tensor& values, const at::Tensor& index) {
    context->save_for_backward({index});
    context->saved_data["sizes"] = values.sizes().vec();
    return values.gather(-1, index);
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const at::Tensor index = context->get_saved_variables()[0], &grad = grads[0];
    at::Tensor sum = at::zeros(context->saved_data["sizes"].toIntVector(), grad.options());
    for (int64_t column = 0; column < index.size(-1); ++column)
      sum.scatter_add_(-1, index.narrow(-1, column, 1), grad.narrow(-1, column, 1));
    return {sum, at::Tensor()};
  }
};

}  // namespace

at::Tensor gathered(const at::Tensor& values, const at::Tensor& index) {
  return values.is_cuda() ? GatherInOrder::apply(values, index) : values.gather(-1, index);
}

}  // namespace sape2::ops::reference
