#include "nn/definitions/table_rows.h"
#include "nn/encodings/per_layer.h"
#include "nn/encodings/tables.h"
#include "ops/sizes.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::nn {
namespace {

class CopeLayer : public LayerEncoding {
 public:
  CopeLayer(const EncodingSpec& spec, const EncodingShape& shape, ParameterScope& scope)
      : spec_(spec),
        shape_(shape),
        inside_(spec.choice("bias") == "inside"),
        e_(scope.parameter("e", {cope_table_rows(spec, shape), shape.head_size()},
                           fill_truncated_normal(kTableDeviation))) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid&) const override {
    return ops::cope_attention(q, k, v, table(q));
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    return ops::cope_attention_rows(q, k, table(q), grid, patches);
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    const int64_t rows = cope_table_rows(spec_, shape_.at_grid(grid.rows, grid.cols));
    return {{"e", rows_at(e_, 0,
                          at::arange(rows, e_.options().dtype(at::kDouble).requires_grad(false)))}};
  }

 private:
  // q·e is linear in e, so the division by √d can be taken there.
  at::Tensor table(const at::Tensor& q) const {
    return inside_ ? e_ / std::sqrt(static_cast<double>(ops::size_of(q, 3))) : e_;
  }

  EncodingSpec spec_;
  EncodingShape shape_;
  bool inside_;
  at::Tensor e_;  // (M, d)
};

}  // namespace

std::vector<EncodingMaker> makers_of_cope() {
  return {{"cope", make_per_layer<CopeLayer>}};
}

}  // namespace sape2::nn
