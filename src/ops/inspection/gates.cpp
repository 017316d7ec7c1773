#include "sape2/ops/gates.h"

#include "ops/checks/checks.h"
#include "ops/reference/reference.h"

#include <ATen/ATen.h>

namespace sape2::ops {
namespace {

/// Gates of the lines of a grid, (B or 1, h, lines, n, n).
void check_gates(const char* function, const char* name, const at::Tensor& gates,
                 const at::Tensor& q, int64_t lines, int64_t patches) {
  const bool one_or_all = gates.dim() == 5 && (gates.size(0) == 1 || gates.size(0) == q.size(0));
  TORCH_CHECK_VALUE(
      one_or_all && gates.sizes().slice(1) == at::IntArrayRef({q.size(1), lines, patches, patches}),
      function, ": gates.", name, " is ", gates.sizes(), ", expected [", q.size(0), " or 1, ",
      q.size(1), ", ", lines, ", ", patches, ", ", patches, "]");
}

}  // namespace

Gates sape2_gates(const at::Tensor& q, const at::Tensor& k, const Grid& grid,
                  const VectorOptions& vectors) {
  return reference::grid_gates({.q = q,
                                .k = k,
                                .ex = {},
                                .ey = {},
                                .grid = grid,
                                .mode = vectors.mode,
                                .span = vectors.span,
                                .gate_scale = vectors.divided_gate_scale(),
                                .gate_offset = vectors.gate_offset});
}

at::Tensor sape2_attention_with_gates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& ex, const at::Tensor& ey, const Grid& grid,
                                      const Gates& gates, const VectorOptions& vectors,
                                      const std::string& form, const BiasOptions& bias) {
  const char* name = "sape2_attention_with_gates";
  const VectorArguments stage1{.q = q,
                               .k = k,
                               .ex = ex,
                               .ey = ey,
                               .grid = grid,
                               .mode = vectors.mode,
                               .span = vectors.span,
                               .gate_scale = {},
                               .gate_offset = {}};
  check(name, stage1);
  check_gates(name, "x", gates.x, q, grid.rows, grid.cols);
  check_gates(name, "y", gates.y, q, grid.cols, grid.rows);
  const auto [ux, uy] = reference::vectors(stage1, gates);
  switch (parse_form(name, form)) {
    case Form::distance:
      return distance_attention(q, k, v, ux, uy, grid, bias);
    case Form::direct:
      return axial_attention(q, k, v, ux, uy, grid, bias);
    default:
      return reference::attention(BiasedArguments{q, k, v, ux, uy, grid, Form::paths,
                                                  scale_or_default(bias.scale, q), bias.gain,
                                                  bias.bias_inside})
          .out;
  }
}

}  // namespace sape2::ops
