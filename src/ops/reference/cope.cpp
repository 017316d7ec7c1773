#include "ops/reference/reference.h"

#include <ATen/ATen.h>

namespace sape2::ops::reference {

AttentionResult attention(const CopeArguments& a) {
  const auto q = widened(a.q), k = widened(a.k), v = widened(a.v), e = widened(a.e);
  const auto scaled = a.scale * at::matmul(q, k.transpose(-2, -1));
  const auto positions =
      at::sigmoid(scaled).flip({-1}).cumsum(-1).flip({-1}).clamp_max(e.size(0) - 1);
  const auto logits = scaled + interpolate(at::matmul(q, e.transpose(0, 1)), positions);
  return {at::matmul(logits.softmax(-1), v).to(a.q.scalar_type()), softmax_rows(logits)};
}

}  // namespace sape2::ops::reference
