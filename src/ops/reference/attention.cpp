#include "ops/reference/reference.h"

#include <ATen/ATen.h>

namespace sape2::ops::reference {

at::Tensor softmax_rows(const at::Tensor& logits) {
  const auto largest = logits.detach().amax(-1, /*keepdim=*/true);
  return at::cat({largest, (logits.detach() - largest).exp().sum(-1, /*keepdim=*/true)}, -1);
}

at::Tensor logits(const at::Tensor& q, const at::Tensor& k, const at::Tensor& bias, double scale,
                  const at::Tensor& gain, bool bias_inside) {
  const auto scores = at::matmul(q, k.transpose(-2, -1));
  if (!bias.defined()) return scale * scores;
  const auto b = per_head(widened(gain), 1, scores, 2) * bias;
  return scale * scores + (bias_inside ? scale * b : b);
}

AttentionResult attention(const BiasedArguments& a) {
  const auto b = a.form == Form::none ? at::Tensor() : bias(a.ux, a.uy, a.grid, a.form);
  const auto all = logits(widened(a.q), widened(a.k), b, a.scale, a.gain, a.bias_inside);
  const auto out = at::matmul(all.softmax(-1), widened(a.v));
  return {out.to(a.q.scalar_type()), softmax_rows(all)};
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
