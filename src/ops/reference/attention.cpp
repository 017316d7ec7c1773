#include "ops/reference/reference.h"

#include <ATen/ATen.h>

namespace sape2::ops::reference {

at::Tensor softmax_rows(const at::Tensor& logits) {
  const auto largest = logits.detach().amax(-1, /*keepdim=*/true);
  return at::cat({largest, (logits.detach() - largest).exp().sum(-1, /*keepdim=*/true)}, -1);
}

AttentionResult attention(const BiasedArguments& a) {
  const auto scores = at::matmul(widened(a.q), widened(a.k).transpose(-2, -1));
  at::Tensor logits = a.scale * scores;
  if (a.form != Form::none) {
    const auto gain = per_head(widened(a.gain), 1, scores, 2);
    const auto b = gain * bias(a.ux, a.uy, a.grid, a.form);
    logits = logits + (a.bias_inside ? a.scale * b : b);
  }
  const auto out = at::matmul(logits.softmax(-1), widened(a.v));
  return {out.to(a.q.scalar_type()), softmax_rows(logits)};
}

AttentionResult attention(const Sape2Arguments& a) {
  const auto [ux, uy] = vectors(a.vectors);
  BiasedArguments stage2{.q = widened(a.vectors.q),
                         .k = widened(a.vectors.k),
                         .v = widened(a.v),
                         .ux = ux,
                         .uy = uy,
                         .grid = a.vectors.grid,
                         .form = a.form,
                         .scale = a.scale,
                         .gain = a.gain,
                         .bias_inside = a.bias_inside};
  auto result = attention(stage2);
  result.out = result.out.to(a.v.scalar_type());
  return result;
}

}  // namespace sape2::ops::reference
