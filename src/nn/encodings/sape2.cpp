#include "nn/definitions/table_rows.h"
#include "nn/encodings/makers.h"
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

/// What the spec and the shape say, looked up once: the Python package makes a layer for every
/// call.
struct Sape2Choices {
  Sape2Choices(const EncodingSpec& its_spec, const EncodingShape& its_shape)
      : spec(its_spec),
        shape(its_shape),
        mode(spec.name().substr(spec.name().rfind('-') + 1)),
        span(spec.choice("span")),
        form(spec.choice("form")),
        resize(spec.choice("resize")),
        learns_gates(spec.choice("gates") == "learnable"),
        opens_gates(spec.choice("gates") == "open"),
        gate_scale(spec.number("gate-scale")),
        gate_offset(*spec.number("gate-offset")),
        gain(*spec.number("gain")),
        learns_gain(spec.choice("gain-mode") == "learnable"),
        gain_per_head(spec.choice("gain-mode") == "per-head"),
        bias_inside(spec.choice("bias") == "inside"),
        root(std::sqrt(static_cast<double>(shape.head_size()))),
        table{sape2_table_rows(spec, shape), shape.head_size()} {
    if (spec.choice("tables") == "per-head") table.insert(table.begin(), shape.heads);
    if (mode == "qk") table.insert(table.begin(), 2);
  }

  EncodingSpec spec;
  EncodingShape shape;
  std::string mode, span, form, resize;
  bool learns_gates, opens_gates;
  std::optional<double> gate_scale;  // nothing: 1/√d
  double gate_offset, gain;
  bool learns_gain, gain_per_head, bias_inside;
  double root;                 // √d
  std::vector<int64_t> table;  // the sizes of each table
};

class Sape2Layer : public LayerEncoding {
 public:
  Sape2Layer(std::shared_ptr<const Sape2Choices> choices, ParameterScope& scope)
      : choices_(std::move(choices)) {
    add_tables(scope);
    add_gates(scope);
    add_gain(scope);
  }

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    const auto [ex, ey] = tables(grid);
    return ops::sape2_attention(q, k, v, ex, ey, grid, vector_options(q), choices_->form,
                                bias_options(q));
  }

  at::Tensor attend_packed(const at::Tensor& qkv, int64_t heads,
                           const ops::Grid& grid) const override {
    if (choices_->form == "paths") return LayerEncoding::attend_packed(qkv, heads, grid);
    const auto [ex, ey] = tables(grid);
    return ops::packed_sape2_attention(qkv, heads, ex, ey, grid, vector_options(qkv),
                                       choices_->form, bias_options(qkv));
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    const auto [ex, ey] = tables(grid);
    return ops::sape2_attention_rows(q, k, ex, ey, grid, patches, vector_options(q), choices_->form,
                                     bias_options(q));
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    const auto [ex, ey] = tables(grid);
    const bool between = choices_->span == "between";
    const int64_t rows =
        sape2_table_rows(choices_->spec, choices_->shape.at_grid(grid.rows, grid.cols));
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
                                           choices_->form, bias_options(q));
  }

 private:
  std::pair<at::Tensor, at::Tensor> tables(const ops::Grid& grid) const {
    return resized_tables(ex_, ey_, choices_->span, choices_->resize, choices_->shape, grid);
  }

  // The gates learn α and β of s_g = α/√d, o_g = β, so that steps do not depend on the head size.
  ops::VectorOptions vector_options(const at::Tensor& q) const {
    return {choices_->mode, choices_->span, gate_scale(q), gate_offset(q),
            alpha_.defined() ? choices_->root : 1};
  }

  ops::BiasOptions bias_options(const at::Tensor& q) const {
    return {.gain = gain(q), .bias_inside = choices_->bias_inside};
  }

  void add_tables(ParameterScope& scope) {
    ex_ = scope.parameter("ex", choices_->table, fill_truncated_normal(kTableDeviation));
    ey_ = scope.parameter("ey", choices_->table, fill_truncated_normal(kTableDeviation));
  }

  void add_gates(ParameterScope& scope) {
    if (!choices_->learns_gates) return;
    const int64_t heads = choices_->shape.heads;
    const double alpha = choices_->gate_scale.value_or(1 / choices_->root) * choices_->root;
    alpha_ = scope.parameter("gate_alpha", {heads}, fill_constant(alpha));
    beta_ = scope.parameter("gate_beta", {heads}, fill_constant(choices_->gate_offset));
  }

  void add_gain(ParameterScope& scope) {
    const Fill start = fill_constant(choices_->gain);
    if (choices_->learns_gain) gain_ = scope.parameter("gain", {}, start);
    if (choices_->gain_per_head) gain_ = scope.parameter("gain", {choices_->shape.heads}, start);
  }

  at::Tensor gate_scale(const at::Tensor& q) const {
    if (alpha_.defined()) return alpha_;
    if (choices_->opens_gates) return scalar(0, q);
    return choices_->gate_scale ? scalar(*choices_->gate_scale, q) : at::Tensor();
  }

  at::Tensor gate_offset(const at::Tensor& q) const {
    if (beta_.defined()) return beta_;
    if (choices_->opens_gates) return scalar(std::numeric_limits<double>::infinity(), q);
    const double offset = choices_->gate_offset;
    return offset == 0 ? at::Tensor() : scalar(offset, q);  // 0 is what undefined means
  }

  at::Tensor gain(const at::Tensor& q) const {
    if (gain_.defined()) return gain_;
    const double gain = choices_->gain;
    return gain == 1 ? at::Tensor() : scalar(gain, q);  // 1 is what undefined means
  }

  std::shared_ptr<const Sape2Choices> choices_;
  at::Tensor ex_, ey_;       // ([2,] [h,] M, d)
  at::Tensor alpha_, beta_;  // (h), learnable gates only
  at::Tensor gain_;          // () or (h), learnable gain only
};

class Sape2Encoding : public Encoding {
 public:
  Sape2Encoding(const EncodingSpec& spec, const EncodingShape& shape)
      : choices_(std::make_shared<const Sape2Choices>(spec, shape)) {}

  std::unique_ptr<LayerEncoding> make_layer(ParameterScope& scope) const override {
    return std::make_unique<Sape2Layer>(choices_, scope);
  }

 private:
  std::shared_ptr<const Sape2Choices> choices_;
};

std::unique_ptr<Encoding> make_sape2(const EncodingSpec& spec, const EncodingShape& shape,
                                     ParameterScope&) {
  return std::make_unique<Sape2Encoding>(spec, shape);
}

}  // namespace

std::vector<EncodingMaker> makers_of_sape2() {
  std::vector<EncodingMaker> makers;
  for (const char* name :
       {"sape2-q", "sape2-k", "sape2-qk", "sape2-rel-q", "sape2-rel-k", "sape2-rel-qk"}) {
    makers.push_back({name, make_sape2});
  }
  return makers;
}

}  // namespace sape2::nn
