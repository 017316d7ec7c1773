#include "sape2/base/error.h"

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
    const int64_t exact = exact_table_rows(spec_.choice("span"), shape_.rows, shape_.cols);
    std::vector<int64_t> sizes{spec_.integer("M").value_or(exact), shape_.head_size()};
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

void check_sape2_options(const EncodingSpec& spec) {
  const std::string encoding = "encoding \"" + spec.name() + "\"";
  if (spec.choice("gates") == "open") {
    for (const char* option : {"gate-scale", "gate-offset"}) {
      if (!spec.has(option)) continue;
      throw Error(encoding + " has gates=open and " + option +
                  ", but open gates have nothing to scale or offset; drop one of the two");
    }
  }
  const auto rows = spec.integer("M");
  if (!rows) return;
  if (spec.choice("span") == "between" && *rows % 2 == 0) {
    throw Error(
        encoding + " has M=" + std::to_string(*rows) +
        ", but span=between needs an odd number of rows, one for each position from -T to T");
  }
  if (spec.choice("span") == "suffix" && *rows < 2) {
    throw Error(encoding + " has M=" + std::to_string(*rows) +
                ", but span=suffix needs at least 2 rows");
  }
}

EncodingOption choice(std::string name, std::vector<std::string> choices, std::string value,
                      std::string description) {
  return {.name = std::move(name),
          .kind = OptionKind::choice,
          .description = std::move(description),
          .choices = std::move(choices),
          .default_value = std::move(value)};
}

EncodingOption number(std::string name, std::optional<std::string> value, std::string text,
                      std::string description) {
  return {.name = std::move(name),
          .kind = OptionKind::number,
          .description = std::move(description),
          .default_value = std::move(value),
          .default_text = std::move(text)};
}

// The options of the paper's setting, or of ours.
std::vector<EncodingOption> sape2_options(bool rel) {
  return {
      choice("span", {"suffix", "between"}, rel ? "between" : "suffix",
             "gates are summed to the end of the row, or from the patch to the other, signed"),
      choice("form", {"distance", "direct"}, rel ? "direct" : "distance",
             "the bias is the distance of two patches' vectors, or read from one's vector"),
      choice("gates", {"fixed", "learnable", "open"}, rel ? "learnable" : "fixed",
             "scale and offset of the gates are fixed, learnt per head, or all gates are 1"),
      number("gate-scale", std::nullopt, "1/√d", "factor on q·k in a gate; learnable: the start"),
      number("gate-offset", rel ? "2" : "0", "", "added to it; learnable: the start"),
      choice("bias", {"inside", "outside"}, rel ? "outside" : "inside",
             "whether the bias is divided by √d as q·k is"),
      number("gain", "1", "", "factor on the bias; learnable: the start"),
      choice("gain-mode", {"fixed", "learnable", "per-head"}, "fixed",
             "the gain is fixed, learnt per layer, or learnt per layer and head"),
      {.name = "M",
       .kind = OptionKind::integer,
       .description = "rows of the tables; longer positions clamp",
       .default_text = rel ? "2·max(H, W) − 1, or max(H, W) + 1 for span=suffix"
                           : "max(H, W) + 1, or 2·max(H, W) − 1 for span=between"},
      choice("tables", {"shared", "per-head"}, "shared", "one pair a layer, or one for each head"),
      choice("resize", {"clamp", "extend", "resample"}, "clamp",
             "at another grid: clamp longer positions, continue the tables, or stretch them"),
  };
}

EncodingDefinition definition(std::string mode, bool rel, std::string tables_meet) {
  return {.name = (rel ? "sape2-rel-" : "sape2-") + mode,
          .summary = (rel ? "SaPE², relative: gated offsets between patches, tables read by "
                          : "SaPE² as published: gated sums to the end, tables read by ") +
                     tables_meet,
          .options = sape2_options(rel),
          .make = make_per_layer<Sape2Layer>,
          .check_options = check_sape2_options};
}

}  // namespace

std::vector<EncodingDefinition> define_sape2() {
  std::vector<EncodingDefinition> all;
  for (const bool rel : {false, true}) {
    all.push_back(definition("q", rel, "q"));
    all.push_back(definition("k", rel, "k"));
    all.push_back(definition("qk", rel, "q and k"));
  }
  return all;
}

}  // namespace sape2::nn
