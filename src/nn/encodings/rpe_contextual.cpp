#include "nn/encodings/per_layer.h"
#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

namespace sape2::nn {
namespace {

/// q_i·(tx[Δx] + ty[Δy]) added to the logits: the direct form on vectors q_i·t[Δ].
template <bool inside>
class ContextualRpeLayer : public LayerEncoding {
 public:
  ContextualRpeLayer(const EncodingSpec&, const EncodingShape& shape, ParameterScope& scope)
      : tx_(scope.parameter("tx", {2 * shape.cols - 1, shape.head_size()},
                            fill_truncated_normal(kTableDeviation))),
        ty_(scope.parameter("ty", {2 * shape.rows - 1, shape.head_size()},
                            fill_truncated_normal(kTableDeviation))) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    const auto [zx, zy] = vectors(q, grid);
    return ops::axial_attention(q, k, v, zx, zy, grid, {.bias_inside = inside});
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    const auto [zx, zy] = vectors(q, grid);
    return ops::axial_attention_rows(q, k, zx, zy, grid, patches, {.bias_inside = inside});
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    return {{"tx", resampled_offsets(tx_, 0, grid.cols - 1)},
            {"ty", resampled_offsets(ty_, 0, grid.rows - 1)}};
  }

 private:
  std::pair<at::Tensor, at::Tensor> vectors(const at::Tensor& q, const ops::Grid& grid) const {
    const at::Tensor patches =
        q.narrow(2, grid.prefix, grid.patches()).unflatten(2, {grid.rows, grid.cols});
    const at::Tensor x = by_offset(tx_.to(q.scalar_type()), grid.cols);
    const at::Tensor y = by_offset(ty_.to(q.scalar_type()), grid.rows);
    return {at::einsum("bhyxd,xnd->bhyxn", {patches, x}).flatten(2, 3),
            at::einsum("bhyxd,ynd->bhyxn", {patches, y}).flatten(2, 3)};
  }

  // (n, n, d): the table's row for the offset from i to m.
  static at::Tensor by_offset(const at::Tensor& table, int64_t n) {
    const at::Tensor rows = offset_rows(n, table);
    return resampled_offsets(table, 0, n - 1)
        .index_select(0, rows.flatten())
        .view({n, n, table.size(1)});
  }

  at::Tensor tx_;  // (2·cols − 1, d)
  at::Tensor ty_;  // (2·rows − 1, d)
};

}  // namespace

std::vector<EncodingMaker> makers_of_rpe_contextual() {
  return {{"rpe-shaw", make_per_layer<ContextualRpeLayer<true>>},
          {"rpe-decomposed", make_per_layer<ContextualRpeLayer<false>>}};
}

}  // namespace sape2::nn
