#include "ops/reference/reference.h"

#include <ATen/ATen.h>

namespace sape2::ops::reference {

CopeSteps cope_steps(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e, double scale) {
  const auto scaled = scale * at::matmul(q, k.transpose(-2, -1));
  CopeSteps steps;
  steps.gates = scalar_sigmoid(scaled);
  steps.positions = steps.gates.flip({-1}).cumsum(-1).flip({-1}).clamp_max(e.size(0) - 1);
  steps.bias = interpolate(at::matmul(q, e.transpose(0, 1)), steps.positions);
  steps.logits = scaled + steps.bias;
  return steps;
}

AttentionResult attention(const CopeArguments& a) {
  const auto logits = cope_steps(widened(a.q), widened(a.k), widened(a.e), a.scale).logits;
  return {at::matmul(logits.softmax(-1), widened(a.v)).to(a.q.scalar_type()), softmax_rows(logits)};
}

}  // namespace sape2::ops::reference
