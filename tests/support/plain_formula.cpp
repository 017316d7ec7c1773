#include "support/plain_formula.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::testing {
namespace {

at::Tensor per_head(const at::Tensor& value, double standard) {
  if (!value.defined()) return at::full({}, standard);
  const auto wide = value.to(at::kFloat);
  return value.dim() == 0 ? wide : wide.view({-1, 1, 1, 1});
}

}  // namespace

at::Tensor PlainFormula::product(const at::Tensor& a, const at::Tensor& b) const {
  return rounded(at::matmul(a, b.transpose(-2, -1)));
}

at::Tensor PlainFormula::sums_from_the_end(const at::Tensor& gates) const {
  return rounded(gates.flip({-1}).cumsum(-1).flip({-1}));
}

at::Tensor PlainFormula::interpolated(const at::Tensor& z, const at::Tensor& p,
                                      int64_t origin) const {
  const auto below = p.detach().floor();
  const auto row = [&](const at::Tensor& at) { return z.gather(-1, at.to(at::kLong) + origin); };
  const auto weight = rounded(p - below);
  return rounded(rounded(weight * row(p.detach().ceil())) +
                 rounded(rounded(1 - weight) * row(below)));
}

at::Tensor PlainFormula::positions(const at::Tensor& gates, const std::string& span) const {
  if (span == "suffix") return sums_from_the_end(gates);
  return rounded(gates.triu(1).cumsum(-1)) - sums_from_the_end(gates.tril(-1));
}

at::Tensor PlainFormula::axis(const at::Tensor& q, const at::Tensor& k, const at::Tensor& a,
                              at::Tensor table, const ops::VectorOptions& options) const {
  const auto scale = per_head(options.gate_scale, 1 / std::sqrt(double(q.size(-1))));
  const auto offset = per_head(options.gate_offset, 0);
  const auto gates = rounded(at::sigmoid(rounded(rounded(scale * product(q, k)) + offset)));
  const int64_t last = table.size(-2) - 1, origin = options.span == "suffix" ? 0 : last / 2;
  if (table.dim() == 3) table = table.unsqueeze(1);
  return interpolated(product(a, table),
                      positions(gates, options.span).clamp(-origin, last - origin), origin);
}

at::Tensor PlainFormula::bias_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& a,
                                 const at::Tensor& ex, const at::Tensor& ey, const ops::Grid& grid,
                                 const ops::VectorOptions& options, const std::string& form) const {
  const auto rows = [&](const at::Tensor& t) {
    return t.narrow(2, grid.prefix, grid.patches())
        .reshape({t.size(0), t.size(1), grid.rows, grid.cols, t.size(3)});
  };
  const auto columns = [&](const at::Tensor& t) { return rows(t).transpose(2, 3).contiguous(); };
  const auto ux = axis(rows(q), rows(k), rows(a), ex, options).flatten(2, 3);
  const auto uy =
      axis(columns(q), columns(k), columns(a), ey, options).transpose(2, 3).flatten(2, 3);
  const auto distance = [&](const at::Tensor& u) {
    return rounded(at::cdist(u.contiguous(), u.contiguous(), 2.0, 2));
  };
  if (form == "distance") return rounded(distance(ux) + distance(uy));
  return rounded(ux.unsqueeze(3) + uy.unsqueeze(4)).flatten(3);
}

at::Tensor PlainFormula::sape2_attention(const at::Tensor& q_in, const at::Tensor& k_in,
                                         const at::Tensor& v, const at::Tensor& ex_in,
                                         const at::Tensor& ey_in, const ops::Grid& grid,
                                         const ops::VectorOptions& options, const std::string& form,
                                         const ops::BiasOptions& bias) const {
  const auto q = q_in.to(at::kFloat), k = k_in.to(at::kFloat);
  const auto ex = rounded(ex_in), ey = rounded(ey_in);
  at::Tensor b;
  if (options.mode == "qk") {
    b = rounded(bias_of(q, k, q, ex[0], ey[0], grid, options, form) +
                bias_of(q, k, k, ex[1], ey[1], grid, options, form));
  } else {
    b = bias_of(q, k, options.mode == "q" ? q : k, ex, ey, grid, options, form);
  }
  b = at::constant_pad_nd(b, {grid.prefix, 0, grid.prefix, 0});
  const auto gain =
      bias.gain.defined() ? per_head(bias.gain, 1).view({-1, 1, 1}) : at::full({}, 1.0);
  const double scale = bias.scale == 0 ? 1 / std::sqrt(double(q.size(3))) : bias.scale;
  const auto scores = product(q, k), with_gain = rounded(gain * b);
  const auto logits = bias.bias_inside ? rounded(scale * rounded(scores + with_gain))
                                       : rounded(rounded(scale * scores) + with_gain);
  return at::matmul(rounded(logits.softmax(-1)), v.to(at::kFloat)).to(type_);
}

at::Tensor PlainFormula::cope_attention(const at::Tensor& q_in, const at::Tensor& k_in,
                                        const at::Tensor& v, const at::Tensor& e,
                                        double scale) const {
  const auto q = q_in.to(at::kFloat), k = k_in.to(at::kFloat);
  const auto scaled = rounded(scale * product(q, k));
  const auto p = sums_from_the_end(rounded(at::sigmoid(scaled))).clamp_max(e.size(0) - 1);
  const auto logits = rounded(scaled + interpolated(product(q, rounded(e)), p, 0));
  return at::matmul(rounded(logits.softmax(-1)), v.to(at::kFloat)).to(type_);
}

}  // namespace sape2::testing
