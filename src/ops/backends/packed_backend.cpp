#include "ops/backends/packed_backend.h"

#include "ops/operators/gate_divisor.h"
#include "ops/packed_heads.h"

#include <ATen/ATen.h>

namespace sape2::ops {
namespace {

/// The tensors of a list with the first one by heads.
Tensors by_heads(TensorList list, int64_t heads) {
  Tensors changed = list.vec();
  changed[0] = split_by_heads(changed[0], heads);
  return changed;
}

/// The thirds' arguments with the divided gates that kernels take.
Sape2Arguments for_kernels(const PackedArguments& a) {
  Sape2Arguments thirds = with_thirds(a);
  if (!a.has_quotient && divides_gates(thirds)) put_divided_gates(thirds, divided_gates(thirds));
  return thirds;
}

}  // namespace

Tensors PackedBackend::forward(const PackedArguments& a) {
  const Sape2Arguments thirds = for_kernels(a);
  const AlreadyChecked<Sape2Arguments> checked(thirds);
  Tensors outputs = Dispatched::forward(thirds);
  outputs[0] = side_by_side(outputs[0]);
  return outputs;
}

Tensors PackedBackend::backward(const BackwardInputs& in, const PackedArguments& a) {
  const Sape2Arguments thirds = for_kernels(a);
  const Tensors grads = by_heads(in.grads, a.heads), outputs = by_heads(in.outputs, a.heads);
  // The first bit stands for dq, dk and dv, which may share memory: they become one tensor.
  int64_t wanted = (in.wanted & ~(BackwardInputs::kMayShare | 1)) << 2;
  if (in.wants(0)) wanted |= 0b111 | (a.qkv.is_meta() ? 0 : BackwardInputs::kMayShare);
  Tensors gradients = Dispatched::backward({grads, outputs, wanted}, thirds);
  if (!a.has_quotient) divide_gradient(thirds, wanted, gradients);
  if (!in.wants(0)) return gradients;
  gradients[2] = joined(gradients[0], gradients[1], gradients[2]);
  gradients.erase(gradients.begin(), gradients.begin() + 2);
  return gradients;
}

TORCH_LIBRARY_IMPL(sape2, CompositeExplicitAutograd, m) {
  m.impl("_packed_sape2_attention_forward", &Kernels<PackedBackend>::packed_forward);
  m.impl("_packed_sape2_attention_backward", &Kernels<PackedBackend>::packed_backward);
}

}  // namespace sape2::ops
