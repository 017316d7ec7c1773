#include "ops/checks.h"
#include "ops/reference/reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::ops::reference {
namespace {

/// Σ_{j ≥ m} g_ij along the last axis.
at::Tensor suffix_positions(const at::Tensor& gates) {
  return gates.flip({-1}).cumsum(-1).flip({-1});
}

/// The signed sum from the patch to m: entries right of the patch count up, left of it down, and
/// the patch itself is not counted. `gates` is (…, n, n), patch by patch of one row or column.
at::Tensor between_positions(const at::Tensor& gates) {
  const auto right = gates.triu(1).cumsum(-1);
  const auto left = gates.tril(-1).flip({-1}).cumsum(-1).flip({-1});
  return right - left;
}

/// One axis for tokens laid out as (B, h, lines, n, d), each line a row or a column of the grid.
/// `table` is (M, d) or (h, M, d). Returns (B, h, lines, n, n).
at::Tensor axis_vectors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& a,
                        const at::Tensor& table, const std::string& span,
                        const at::Tensor& gate_scale, const at::Tensor& gate_offset) {
  const auto gates = at::sigmoid(gate_scale * ordered_products(q, k) + gate_offset);
  const int64_t last = table.size(-2) - 1;
  const int64_t origin = span == "suffix" ? 0 : last / 2;  // the table row of position 0
  const auto positions = (span == "suffix" ? suffix_positions(gates) : between_positions(gates))
                             .clamp(-origin, last - origin);
  const auto per_head_table =
      table.dim() == 3 ? table.view({1, table.size(0), 1, table.size(1), table.size(2)}) : table;
  return interpolate(ordered_products(a, per_head_table), positions, origin);
}

std::pair<at::Tensor, at::Tensor> one_part(const VectorArguments& s, const at::Tensor& a,
                                           const at::Tensor& ex, const at::Tensor& ey) {
  const auto& g = s.grid;
  const int64_t images = s.q.size(0), heads = s.q.size(1), head_size = s.q.size(3);
  const auto rows_of = [&](const at::Tensor& t) {  // (B, h, N, d) → (B, h, H, W, d)
    return t.narrow(2, g.prefix, g.patches()).reshape({images, heads, g.rows, g.cols, head_size});
  };
  const auto columns_of = [&](const at::Tensor& t) { return rows_of(t).transpose(2, 3); };
  const auto scale = per_head(s.gate_scale, 1 / std::sqrt(double(head_size)), s.q, 3);
  const auto offset = per_head(s.gate_offset, 0, s.q, 3);

  const auto ux = axis_vectors(rows_of(s.q), rows_of(s.k), rows_of(a), ex, s.span, scale, offset);
  const auto uy =
      axis_vectors(columns_of(s.q), columns_of(s.k), columns_of(a), ey, s.span, scale, offset);
  return {ux.reshape({images, heads, g.patches(), g.cols}),
          uy.transpose(2, 3).reshape({images, heads, g.patches(), g.rows})};
}

}  // namespace

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(compute_type(tensor)) : tensor;
}

at::Tensor per_head(const at::Tensor& value, double standard, const at::Tensor& like,
                    int64_t axes) {
  if (!value.defined()) return at::full({}, standard, like.options());
  if (value.dim() == 0) return value;
  std::vector<int64_t> shape(axes + 1, 1);
  shape[0] = value.size(0);
  return value.view(shape);
}

at::Tensor ordered_products(const at::Tensor& a, const at::Tensor& b) {
  return (a.unsqueeze(-2) * b.unsqueeze(-3)).sum(-1);
}

at::Tensor interpolate(const at::Tensor& z, const at::Tensor& p, int64_t origin) {
  // A NaN position reads position 0's row and stays NaN through its weight.
  const auto below = p.detach().floor();
  const auto row = [&](const at::Tensor& position) {
    return z.gather(-1, position.nan_to_num(0).to(at::kLong) + origin);
  };
  const auto weight = p - below;
  return weight * row(p.detach().ceil()) + (1 - weight) * row(below);
}

std::pair<at::Tensor, at::Tensor> vectors(const VectorArguments& given) {
  VectorArguments a = given;
  for (auto* tensor : {&a.q, &a.k, &a.ex, &a.ey, &a.gate_scale, &a.gate_offset})
    *tensor = widened(*tensor);
  if (!a.has_both()) return one_part(a, a.has_q() ? a.q : a.k, a.ex, a.ey);
  const auto [uxq, uyq] = one_part(a, a.q, a.ex[0], a.ey[0]);
  const auto [uxk, uyk] = one_part(a, a.k, a.ex[1], a.ey[1]);
  return {at::stack({uxq, uxk}), at::stack({uyq, uyk})};
}

}  // namespace sape2::ops::reference
