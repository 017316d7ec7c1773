#include "ops/checks/checks.h"
#include "ops/reference/reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::ops::reference {
namespace {

/// The table row of position 0.
int64_t origin_of(const std::string& span, int64_t table_rows) {
  return span == "suffix" ? 0 : (table_rows - 1) / 2;
}

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

/// One axis for tokens `a` laid out as (B, h, lines, n, d), each line a row or a column of the
/// grid, and the gates (B or 1, h, lines, n, n) of these lines. `table` is (M, d) or (h, M, d).
/// Returns (B, h, lines, n, n).
at::Tensor axis_vectors(const at::Tensor& gates, const at::Tensor& a, const at::Tensor& table,
                        const std::string& span) {
  const auto per_head_table =
      table.dim() == 3 ? table.view({1, table.size(0), 1, table.size(1), table.size(2)}) : table;
  const auto z = ordered_products(a, per_head_table);
  auto sizes = gates.sizes().vec();
  sizes[0] = a.size(0);
  const auto p = positions(gates, span, table.size(-2)).expand(sizes);
  return interpolate(z, p, origin_of(span, table.size(-2)));
}

std::pair<at::Tensor, at::Tensor> one_part(const VectorArguments& s, const Gates& gates,
                                           const at::Tensor& a, const at::Tensor& ex,
                                           const at::Tensor& ey) {
  const auto& g = s.grid;
  const int64_t images = s.q.size(0), heads = s.q.size(1);
  const auto ux = axis_vectors(gates.x, rows_of_grid(a, g), ex, s.span);
  const auto uy = axis_vectors(gates.y, columns_of_grid(a, g), ey, s.span);
  return {ux.reshape({images, heads, g.patches(), g.cols}),
          uy.transpose(2, 3).reshape({images, heads, g.patches(), g.rows})};
}

VectorArguments widened_arguments(const VectorArguments& given) {
  VectorArguments a = given;
  for (at::Tensor* tensor : a.tensors()) *tensor = widened(*tensor);
  return a;
}

}  // namespace

at::Tensor gates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& gate_scale,
                 const at::Tensor& gate_offset) {
  return scalar_sigmoid(gate_scale * ordered_products(q, k) + gate_offset);
}

at::Tensor positions(const at::Tensor& gates, const std::string& span, int64_t table_rows) {
  const int64_t origin = origin_of(span, table_rows);
  return (span == "suffix" ? suffix_positions(gates) : between_positions(gates))
      .clamp(-origin, table_rows - 1 - origin);
}

at::Tensor rows_of_grid(const at::Tensor& tokens, const Grid& grid) {
  return tokens.narrow(2, grid.prefix, grid.patches())
      .reshape({tokens.size(0), tokens.size(1), grid.rows, grid.cols, tokens.size(3)});
}

at::Tensor columns_of_grid(const at::Tensor& tokens, const Grid& grid) {
  return rows_of_grid(tokens, grid).transpose(2, 3);
}

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
    return gathered(z, position.nan_to_num(0).to(at::kLong) + origin);
  };
  const auto weight = p - below;
  return weight * row(p.detach().ceil()) + (1 - weight) * row(below);
}

Gates grid_gates(const VectorArguments& given) {
  const VectorArguments a = widened_arguments(given);
  const double standard = 1 / std::sqrt(static_cast<double>(a.q.size(3)));
  const auto scale = per_head(a.gate_scale, standard, a.q, 3);
  const auto offset = per_head(a.gate_offset, 0, a.q, 3);
  return {gates(rows_of_grid(a.q, a.grid), rows_of_grid(a.k, a.grid), scale, offset),
          gates(columns_of_grid(a.q, a.grid), columns_of_grid(a.k, a.grid), scale, offset)};
}

std::pair<at::Tensor, at::Tensor> vectors(const VectorArguments& given, const Gates& gates) {
  const VectorArguments a = widened_arguments(given);
  if (!a.has_both()) return one_part(a, gates, a.has_q() ? a.q : a.k, a.ex, a.ey);
  const auto [uxq, uyq] = one_part(a, gates, a.q, a.ex[0], a.ey[0]);
  const auto [uxk, uyk] = one_part(a, gates, a.k, a.ex[1], a.ey[1]);
  return {at::stack({uxq, uxk}), at::stack({uyq, uyk})};
}

std::pair<at::Tensor, at::Tensor> vectors(const VectorArguments& a) {
  return vectors(a, grid_gates(a));
}

}  // namespace sape2::ops::reference
