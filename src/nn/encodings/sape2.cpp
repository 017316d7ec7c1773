#include "nn/definitions/table_rows.h"
#include "nn/encodings/per_layer.h"
#include "nn/encodings/sape2_tables.h"
#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace sape2::nn {
namespace {

// A number of the type the ops compute in, on q's device.
at::Tensor scalar(double value, const at::Tensor& q) {
  const auto type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::full({}, value, q.options().dtype(type));
}

class Sape2Layer : public LayerEncoding {
 public:
  Sape2Layer(const EncodingSpec& spec, const EncodingShape& shape, ParameterScope& scope)
      : spec_(spec), shape_(shape), mode_(spec.name().substr(spec.name().rfind('-') + 1)) {
    add_tables(scope);
    add_gates(scope);
    add_gain(scope);
  }

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    const auto [ex, ey] = tables(grid);
    return ops::sape2_attention(q, k, v, ex, ey, grid, vector_options(q), spec_.choice("form"),
                                bias_options(q));
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    const auto [ex, ey] = tables(grid);
    return ops::sape2_attention_rows(q, k, ex, ey, grid, patches, vector_options(q),
                                     spec_.choice("form"), bias_options(q));
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    const auto [ex, ey] = tables(grid);
    const bool between = spec_.choice("span") == "between";
    const int64_t rows = sape2_table_rows(spec_, shape_.at_grid(grid.rows, grid.cols));
    return {{"ex", with_rows(ex, between, rows)}, {"ey", with_rows(ey, between, rows)}};
  }

  std::optional<ops::Gates> gates(const at::Tensor& q, const at::Tensor& k,
                                  const ops::Grid& grid) const override {
    return ops::sape2_gates(q, k, grid, vector_options(q));
  }

  at::Tensor attend_with_gates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ops::Grid& grid, const ops::Gates& gates) const override {
    const auto [ex, ey] = tables(grid);
    return ops::sape2_attention_with_gates(q, k, v, ex, ey, grid, gates, vector_options(q),
                                           spec_.choice("form"), bias_options(q));
  }

 private:
  std::pair<at::Tensor, at::Tensor> tables(const ops::Grid& grid) const {
    return resized_tables(ex_, ey_, spec_.choice("span"), spec_.choice("resize"), shape_, grid);
  }

  ops::VectorOptions vector_options(const at::Tensor& q) const {
    return {mode_, spec_.choice("span"), gate_scale(q), gate_offset(q)};
  }

  ops::BiasOptions bias_options(const at::Tensor& q) const {
    return {.gain = gain(q), .bias_inside = spec_.choice("bias") == "inside"};
  }

  void add_tables(ParameterScope& scope) {
    std::vector<int64_t> sizes{sape2_table_rows(spec_, shape_), shape_.head_size()};
    if (spec_.choice("tables") == "per-head") sizes.insert(sizes.begin(), shape_.heads);
    if (mode_ == "qk") sizes.insert(sizes.begin(), 2);
    ex_ = scope.parameter("ex", sizes, fill_truncated_normal(kTableDeviation));
    ey_ = scope.parameter("ey", sizes, fill_truncated_normal(kTableDeviation));
  }

  // The gates learn α and β of s_g = α/√d, o_g = β, so that steps do not depend on the head size.
  void add_gates(ParameterScope& scope) {
    if (spec_.choice("gates") != "learnable") return;
    const double alpha = spec_.number("gate-scale").value_or(1 / root()) * root();
    alpha_ = scope.parameter("gate_alpha", {shape_.heads}, fill_constant(alpha));
    beta_ =
        scope.parameter("gate_beta", {shape_.heads}, fill_constant(*spec_.number("gate-offset")));
  }

  void add_gain(ParameterScope& scope) {
    const Fill start = fill_constant(*spec_.number("gain"));
    if (spec_.choice("gain-mode") == "learnable") gain_ = scope.parameter("gain", {}, start);
    if (spec_.choice("gain-mode") == "per-head") {
      gain_ = scope.parameter("gain", {shape_.heads}, start);
    }
  }

  at::Tensor gate_scale(const at::Tensor& q) const {
    if (alpha_.defined()) return alpha_ / root();
    if (spec_.choice("gates") == "open") return scalar(0, q);
    const auto number = spec_.number("gate-scale");
    return number ? scalar(*number, q) : at::Tensor();
  }

  at::Tensor gate_offset(const at::Tensor& q) const {
    if (beta_.defined()) return beta_;
    if (spec_.choice("gates") == "open") return scalar(std::numeric_limits<double>::infinity(), q);
    const double offset = *spec_.number("gate-offset");
    return offset == 0 ? at::Tensor() : scalar(offset, q);  // 0 is what undefined means
  }

  at::Tensor gain(const at::Tensor& q) const {
    if (gain_.defined()) return gain_;
    const double gain = *spec_.number("gain");
    return gain == 1 ? at::Tensor() : scalar(gain, q);  // 1 is what undefined means
  }

  double root() const { return std::sqrt(static_cast<double>(shape_.head_size())); }

  EncodingSpec spec_;
  EncodingShape shape_;
  std::string mode_;
  at::Tensor ex_, ey_;       // ([2,] [h,] M, d)
  at::Tensor alpha_, beta_;  // (h), learnable gates only
  at::Tensor gain_;          // () or (h), learnable gain only
};

}  // namespace

std::vector<EncodingMaker> makers_of_sape2() {
  std::vector<EncodingMaker> makers;
  for (const char* name :
       {"sape2-q", "sape2-k", "sape2-qk", "sape2-rel-q", "sape2-rel-k", "sape2-rel-qk"}) {
    makers.push_back({name, make_per_layer<Sape2Layer>});
  }
  return makers;
}

}  // namespace sape2::nn
