#include "nn/encodings/per_layer.h"
#include "nn/encodings/tables.h"
#include "ops/sizes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace sape2::nn {
namespace {

constexpr int64_t kLongestDefault = 64;

class CopeLayer : public LayerEncoding {
 public:
  CopeLayer(const EncodingSpec& spec, const EncodingShape& shape, ParameterScope& scope)
      : inside_(spec.choice("bias") == "inside"),
        e_(scope.parameter("e", {rows(spec, shape), shape.head_size()},
                           fill_truncated_normal(kTableDeviation))) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid&) const override {
    return ops::cope_attention(q, k, v, table(q));
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    return ops::cope_attention_rows(q, k, table(q), grid, patches);
  }

 private:
  // q·e is linear in e, so the division by √d can be taken there.
  at::Tensor table(const at::Tensor& q) const {
    return inside_ ? e_ / std::sqrt(static_cast<double>(ops::size_of(q, 3))) : e_;
  }

  static int64_t rows(const EncodingSpec& spec, const EncodingShape& shape) {
    return spec.integer("M").value_or(
        std::max<int64_t>(2, std::min(shape.tokens(), kLongestDefault)));
  }

  bool inside_;
  at::Tensor e_;  // (M, d)
};

}  // namespace

std::vector<EncodingDefinition> define_cope() {
  return {{.name = "cope",
           .summary = "contextual positions: gated sums over the raster order of all tokens",
           .options = {{.name = "M",
                        .kind = OptionKind::integer,
                        .description = "rows of the table; longer sums clamp to the last",
                        .default_text = "min(N, 64)",
                        .minimum = 2},
                       {.name = "bias",
                        .kind = OptionKind::choice,
                        .description = "whether the bias is divided by √d as q·k is",
                        .choices = {"inside", "outside"},
                        .default_value = "outside"}},
           .make = make_per_layer<CopeLayer>}};
}

}  // namespace sape2::nn
