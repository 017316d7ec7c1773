#include "ops/reference_backend.h"

#include "ops/checks.h"
#include "ops/reference/reference.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

namespace sape2::ops {
namespace {

Tensors list(const AttentionResult& result) {
  return {result.out, result.softmax};
}

}  // namespace

Tensors ReferenceBackend::forward(const BiasedArguments& a) {
  return list(reference::attention(a));
}
Tensors ReferenceBackend::forward(const Sape2Arguments& a) {
  return list(reference::attention(a));
}
Tensors ReferenceBackend::forward(const CopeArguments& a) {
  return list(reference::attention(a));
}

Tensors ReferenceBackend::forward(const VectorArguments& a) {
  const auto [ux, uy] = reference::vectors(a);
  return {ux.to(a.q.scalar_type()), uy.to(a.q.scalar_type())};
}

Tensors ReferenceBackend::forward(const BiasArguments& a) {
  return {reference::bias(a.ux, a.uy, a.grid, a.form).to(a.ux.scalar_type())};
}

Tensors ReferenceBackend::autograd_of(const Tensors& outputs, const Tensors& leaves,
                                      TensorList grads) {
  auto gradients = torch::autograd::grad(outputs, leaves, grads.vec(), /*retain_graph=*/false,
                                         /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t index = 0; index < leaves.size(); ++index)
    if (!gradients[index].defined()) gradients[index] = at::zeros_like(leaves[index]);
  return gradients;
}

}  // namespace sape2::ops
