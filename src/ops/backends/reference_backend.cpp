#include "ops/backends/reference_backend.h"

#include "ops/backends/kept_vectors.h"
#include "ops/checks/checks.h"
#include "ops/packed_heads.h"
#include "ops/reference/reference.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

namespace sape2::ops {
namespace {

/// Laid out as the fused kernels do it, which is what Meta tensors promise.
Tensors list(const Tensor& q, const AttentionResult& result) {
  const Tensor out = empty_output(q);
  return {out.strides() == result.out.strides() ? result.out : out.copy_(result.out),
          result.softmax};
}

}  // namespace

Tensors ReferenceBackend::forward(const BiasedArguments& a) {
  return list(a.q, reference::attention(a));
}
Tensors ReferenceBackend::forward(const Sape2Arguments& a) {
  auto outputs = list(a.vectors.q, reference::attention(a));
  outputs.push_back(empty_kept(a));
  return outputs;
}
Tensors ReferenceBackend::forward(const CopeArguments& a) {
  return list(a.q, reference::attention(a));
}

Tensors ReferenceBackend::forward(const VectorArguments& a) {
  const auto [ux, uy] = reference::vectors(a);
  return {ux.to(a.q.scalar_type()).contiguous(), uy.to(a.q.scalar_type()).contiguous()};
}

Tensors ReferenceBackend::forward(const BiasArguments& a) {
  return {reference::bias(a.ux, a.uy, a.grid, a.form).to(a.ux.scalar_type())};
}

Tensors ReferenceBackend::autograd_of(const Tensors& outputs, const Tensors& leaves,
                                      TensorList grads) {
  // An output may not depend on any of the leaves, as uy does not on the table ex.
  Tensors reached, their_grads;
  for (size_t index = 0; index < outputs.size(); ++index) {
    if (!outputs[index].requires_grad()) continue;
    reached.push_back(outputs[index]);
    their_grads.push_back(grads[index]);
  }
  Tensors gradients(leaves.size());
  if (!reached.empty())
    gradients = torch::autograd::grad(reached, leaves, their_grads, /*retain_graph=*/false,
                                      /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t index = 0; index < leaves.size(); ++index)
    gradients[index] = gradients[index].defined()
                           ? gradients[index].contiguous()
                           : at::zeros(leaves[index].sizes(), leaves[index].options());
  return gradients;
}

#ifndef SAPE2_FUSED_CUDA  // otherwise cuda_backend.cpp says it
TORCH_LIBRARY_IMPL(sape2, CUDA, m) {
  Kernels<ReferenceBackend>::implement(m);
}
#endif

}  // namespace sape2::ops
