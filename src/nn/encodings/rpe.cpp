#include "nn/encodings/per_layer.h"
#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

namespace sape2::nn {
namespace {

/// A learnable number per head and offset along each axis, added to q·k. It is the direct form on
/// vectors that do not depend on content.
class RpeLayer : public LayerEncoding {
 public:
  RpeLayer(const EncodingSpec&, const EncodingShape& shape, ParameterScope& scope)
      : rx_(scope.parameter("rx", {shape.heads, 2 * shape.cols - 1}, fill_constant(0))),
        ry_(scope.parameter("ry", {shape.heads, 2 * shape.rows - 1}, fill_constant(0))) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    const auto [zx, zy] = vectors(grid, q);
    return ops::axial_attention(q, k, v, zx, zy, grid, {.bias_inside = true});
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    const auto [zx, zy] = vectors(grid, q);
    return ops::axial_attention_rows(q, k, zx, zy, grid, patches, {.bias_inside = true});
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    return {{"rx", resampled_offsets(rx_, 1, grid.cols - 1)},
            {"ry", resampled_offsets(ry_, 1, grid.rows - 1)}};
  }

 private:
  std::pair<at::Tensor, at::Tensor> vectors(const ops::Grid& grid, const at::Tensor& q) const {
    const at::Tensor x = by_offset(rx_, grid.cols);  // (h, cols, cols)
    const at::Tensor y = by_offset(ry_, grid.rows);  // (h, rows, rows)
    // Patch (y, x) is number y·cols + x: x's vectors repeat as a block, y's one by one.
    const at::Tensor zx = x.repeat({1, grid.rows, 1}).to(q.scalar_type());
    // (Not by repeat_interleave, which PyTorch 1.13 cannot do on the meta device.)
    const at::Tensor zy =
        y.unsqueeze(2).expand({-1, -1, grid.cols, -1}).flatten(1, 2).to(q.scalar_type());
    const auto for_each_image = [&](const at::Tensor& z) {
      return z.unsqueeze(0).expand_symint({q.sym_size(0), -1, -1, -1});
    };
    return {for_each_image(zx), for_each_image(zy)};
  }

  static at::Tensor by_offset(const at::Tensor& table, int64_t n) {
    const at::Tensor rows = offset_rows(n, table);
    return resampled_offsets(table, 1, n - 1)
        .index_select(1, rows.flatten())
        .view({table.size(0), n, n});
  }

  at::Tensor rx_;  // (heads, 2·cols − 1)
  at::Tensor ry_;  // (heads, 2·rows − 1)
};

}  // namespace

std::vector<EncodingMaker> makers_of_rpe() {
  return {{"rpe", make_per_layer<RpeLayer>}};
}

}  // namespace sape2::nn
