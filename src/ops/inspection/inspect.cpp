#include "sape2/ops/inspect.h"

#include "ops/checks/checks.h"
#include "ops/reference/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace sape2::ops {
namespace {

/// The chosen patches' numbers along an axis of patches, on the tensors' device.
at::Tensor patch_index(const char* function, const PatchList& patches, const Grid& grid,
                       const at::Tensor& like) {
  for (const int64_t patch : patches) {
    TORCH_CHECK_VALUE(patch >= 0 && patch < grid.patches(), function, ": patch ", patch,
                      " is outside the grid; numbers from 0 to ", grid.patches() - 1,
                      " were expected");
  }
  return at::tensor(patches, at::kLong).to(like.device());
}

at::Tensor patches_of(const at::Tensor& tokens, const Grid& grid) {
  return tokens.narrow(-1, grid.prefix, grid.patches());
}

/// `lines` (B, h, lines, n, n): the row of each chosen patch within its own line.
at::Tensor rows_of_lines(const at::Tensor& lines, const at::Tensor& line, const at::Tensor& place) {
  return lines.index({at::indexing::Slice(), at::indexing::Slice(), line, place});
}

/// Gates and positions of the lines (B, h, lines, n, d) that chosen patches lie in.
void look_along(AxisRows& axis, const at::Tensor& q_lines, const at::Tensor& k_lines,
                const at::Tensor& line, const at::Tensor& place, const VectorArguments& a) {
  // A line at a time: a figure may ask for every patch, and lines come again.
  const auto [lines, which] = at::_unique(line, /*sorted=*/true, /*return_inverse=*/true);
  const double standard = 1 / std::sqrt(static_cast<double>(a.q.size(3)));
  const auto scale = reference::per_head(reference::widened(a.gate_scale), standard, q_lines, 3);
  const auto offset = reference::per_head(reference::widened(a.gate_offset), 0, q_lines, 3);
  const auto gates = reference::gates(q_lines.index_select(2, lines),
                                      k_lines.index_select(2, lines), scale, offset);
  const auto positions = reference::positions(gates, a.span, a.ex.size(-2));
  // No sum of n gates reaches the end of this one.
  const auto unclamped = reference::positions(gates, a.span, 2 * gates.size(-1) + 3);
  axis.gates = rows_of_lines(gates, which, place);
  axis.positions = rows_of_lines(positions, which, place);
  axis.clamped = rows_of_lines(positions.ne(unclamped), which, place);
}

/// What the bias is multiplied by on its way into the logits, (h).
at::Tensor logit_factor(const at::Tensor& q, const BiasOptions& options) {
  const double inside = options.bias_inside ? scale_or_default(options.scale, q) : 1;
  const auto factor = at::full({q.size(1)}, inside, at::kDouble);
  return options.gain.defined() ? factor * options.gain.to(at::kCPU, at::kDouble) : factor;
}

/// Bias and attention that axis vectors make.
void add_biased(AttentionRows& rows, const at::Tensor& q, const at::Tensor& k, const at::Tensor& ux,
                const at::Tensor& uy, const Grid& grid, Form form, const at::Tensor& index,
                const BiasOptions& options) {
  const auto x = reference::widened(ux), y = reference::widened(uy);
  const auto [along_x, along_y] = reference::bias_parts(x, y, grid, form, index);
  rows.x.bias = along_x;
  rows.y.bias = along_y;
  rows.bias = along_x + along_y;
  rows.is_distance = form == Form::distance;
  rows.logit_factor = logit_factor(q, options);
  const auto chosen = reference::widened(q).index_select(2, index + grid.prefix);
  const auto logits = reference::logits(
      chosen, reference::widened(k), at::constant_pad_nd(rows.bias, {grid.prefix, 0}),
      scale_or_default(options.scale, q), options.gain, options.bias_inside);
  rows.attention = logits.softmax(-1);
}

}  // namespace

AttentionRows attention_rows(const at::Tensor& q, const at::Tensor& k, const Grid& grid,
                             const PatchList& patches, double scale) {
  const char* name = "attention_rows";
  const at::NoGradGuard no_grad;
  check(name, BiasedArguments{.q = q, .k = k, .v = k, .scale = scale_or_default(scale, q)});
  const auto index = patch_index(name, patches, grid, q);
  const auto chosen = reference::widened(q).index_select(2, index + grid.prefix);
  const auto logits = reference::logits(chosen, reference::widened(k), {},
                                        scale_or_default(scale, q), {}, /*bias_inside=*/true);
  return {.attention = logits.softmax(-1)};
}

AttentionRows sape2_attention_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& ex,
                                   const at::Tensor& ey, const Grid& grid, const PatchList& patches,
                                   const VectorOptions& vectors, const std::string& form,
                                   const BiasOptions& bias) {
  const char* name = "sape2_attention_rows";
  const at::NoGradGuard no_grad;
  const auto index = patch_index(name, patches, grid, q);
  const auto [ux, uy] = sape2_vectors(q, k, ex, ey, grid, vectors);
  AttentionRows rows;
  add_biased(rows, q, k, ux, uy, grid, parse_form(name, form), index, bias);

  const VectorArguments a{.q = q,
                          .k = k,
                          .ex = ex,
                          .ey = ey,
                          .grid = grid,
                          .mode = vectors.mode,
                          .span = vectors.span,
                          .gate_scale = vectors.divided_gate_scale(),
                          .gate_offset = vectors.gate_offset};
  const auto y = index.div(grid.cols, "floor"), x = index.remainder(grid.cols);
  const auto wide_q = reference::widened(q), wide_k = reference::widened(k);
  look_along(rows.x, reference::rows_of_grid(wide_q, grid), reference::rows_of_grid(wide_k, grid),
             y, x, a);
  look_along(rows.y, reference::columns_of_grid(wide_q, grid),
             reference::columns_of_grid(wide_k, grid), x, y, a);
  return rows;
}

AttentionRows axial_attention_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& zx,
                                   const at::Tensor& zy, const Grid& grid, const PatchList& patches,
                                   const BiasOptions& bias) {
  const char* name = "axial_attention_rows";
  const at::NoGradGuard no_grad;
  check(name, BiasedArguments{q, k, k, zx, zy, grid, Form::direct, scale_or_default(bias.scale, q),
                              bias.gain, bias.bias_inside});
  AttentionRows rows;
  add_biased(rows, q, k, zx, zy, grid, Form::direct, patch_index(name, patches, grid, q), bias);
  return rows;
}

AttentionRows cope_attention_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e,
                                  const Grid& grid, const PatchList& patches, double scale) {
  const char* name = "cope_attention_rows";
  const at::NoGradGuard no_grad;
  const double factor = scale_or_default(scale, q);
  check(name, CopeArguments{q, k, k, e, factor});
  const auto index = patch_index(name, patches, grid, q);
  const auto steps =
      reference::cope_steps(reference::widened(q).index_select(2, index + grid.prefix),
                            reference::widened(k), reference::widened(e), factor);
  const auto sums = steps.gates.flip({-1}).cumsum(-1).flip({-1});
  return {.attention = steps.logits.softmax(-1),
          .bias = patches_of(steps.bias, grid),
          .logit_factor = at::ones({q.size(1)}, at::kDouble),
          .gates = steps.gates,
          .positions = steps.positions,
          .clamped = steps.positions.ne(sums)};
}

}  // namespace sape2::ops
