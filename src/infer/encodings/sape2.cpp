#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "infer/encodings/sape2_attention.h"
#include "nn/definitions/table_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sape2::infer {
namespace {

/// Adds `count` rows behind the last one, on the line from row `from` through the last.
void continue_rows(Table& table, std::int64_t group, std::int64_t last, std::int64_t from,
                   std::int64_t count, std::int64_t direction) {
  const auto length = static_cast<float>(std::max<std::int64_t>(1, std::abs(last - from)));
  const float* end = table.row(group, last);
  const float* origin = table.row(group, from);
  for (std::int64_t n = 1; n <= count; ++n) {
    float* row = table.row(group, last + direction * n);
    for (std::int64_t c = 0; c < table.width; ++c) {
      row[c] = end[c] + (end[c] - origin[c]) / length * static_cast<float>(n);
    }
  }
}

/// Longer by `more` rows, each end continued along the straight line from the row of position 0.
Table extended(const Table& table, bool between, std::int64_t more) {
  const std::int64_t before = between ? more / 2 : 0, behind = between ? more / 2 : more;
  const std::int64_t origin = between ? table.rows / 2 : 0;
  Table longer = empty_table(table.groups, before + table.rows + behind, table.width);
  for (std::int64_t group = 0; group < table.groups; ++group) {
    std::copy_n(table.row(group, 0), table.rows * table.width, longer.row(group, before));
    continue_rows(longer, group, before + table.rows - 1, before + origin, behind, +1);
    if (between) continue_rows(longer, group, before, before + origin, before, -1);
  }
  return longer;
}

/// A table of `rows` rows for an axis of `to` patches, from one for an axis of `from` patches.
Table resampled(const Table& table, bool between, std::int64_t rows, std::int64_t from,
                std::int64_t to) {
  const std::int64_t origin = between ? table.rows / 2 : 0, first = between ? -(rows / 2) : 0;
  // The longest position of an axis of n patches: n to the end, n − 1 between two patches.
  return stretched(table, origin, between ? from - 1 : from, between ? to - 1 : to, first, rows);
}

class Sape2Layer : public LayerEncoding {
 public:
  Sape2Layer(const nn::EncodingSpec& spec, const nn::EncodingShape& shape, Weights& weights,
             const std::string& prefix)
      : shape_(shape), span_(spec.choice("span")), resize_(spec.choice("resize")) {
    if (spec.choice("form") == "paths") {
      throw Error("encoding " + in_quotes(spec.to_string()) +
                  " cannot be run without LibTorch: the runtime has no kernel for form=paths; use "
                  "the commands of `sape2`, or an ONNX file");
    }
    const std::string mode = spec.name().substr(spec.name().rfind('-') + 1);
    p_.source = mode == "q"   ? kernels::Source::q
                : mode == "k" ? kernels::Source::k
                              : kernels::Source::qk;
    p_.span = span_ == "between" ? kernels::Span::between : kernels::Span::suffix;
    p_.form = spec.choice("form") == "direct" ? kernels::Form::direct : kernels::Form::distance;
    p_.inside = spec.choice("bias") == "inside";
    add_tables(spec, weights, prefix);
    add_gates(spec, weights, prefix);
    add_gain(spec, weights, prefix);
  }

  std::unique_ptr<GridAttention> on(const Grid& grid) const override {
    Sape2Parameters parameters = p_;
    resize(parameters, grid);
    return std::make_unique<Sape2Attention>(std::move(parameters));
  }

 private:
  void add_tables(const nn::EncodingSpec& spec, Weights& weights, const std::string& prefix) {
    const std::int64_t rows = nn::sape2_table_rows(spec, shape_);
    std::vector<std::int64_t> sizes{rows, shape_.head_size()};
    std::int64_t groups = 1;
    p_.tables_per_head = spec.choice("tables") == "per-head";
    if (p_.tables_per_head) {
      sizes.insert(sizes.begin(), shape_.heads);
      groups *= shape_.heads;
    }
    if (p_.source == kernels::Source::qk) {
      sizes.insert(sizes.begin(), 2);
      groups *= 2;
    }
    p_.ex = {groups, rows, shape_.head_size(), weights.floats(prefix + "ex", sizes)};
    p_.ey = {groups, rows, shape_.head_size(), weights.floats(prefix + "ey", sizes)};
  }

  void add_gates(const nn::EncodingSpec& spec, Weights& weights, const std::string& prefix) {
    const auto heads = static_cast<std::size_t>(shape_.heads);
    const double root = std::sqrt(static_cast<double>(shape_.head_size()));
    if (spec.choice("gates") == "learnable") {
      p_.gate_scale = weights.floats(prefix + "gate_alpha", {shape_.heads});
      for (float& alpha : p_.gate_scale) alpha /= static_cast<float>(root);
      p_.gate_offset = weights.floats(prefix + "gate_beta", {shape_.heads});
    } else if (spec.choice("gates") == "open") {
      p_.gate_scale.assign(heads, 0.0F);
      p_.gate_offset.assign(heads, std::numeric_limits<float>::infinity());
    } else {
      p_.gate_scale.assign(heads, static_cast<float>(spec.number("gate-scale").value_or(1 / root)));
      p_.gate_offset.assign(heads, static_cast<float>(*spec.number("gate-offset")));
    }
  }

  void add_gain(const nn::EncodingSpec& spec, Weights& weights, const std::string& prefix) {
    const std::string& mode = spec.choice("gain-mode");
    if (mode == "per-head") {
      p_.gain = weights.floats(prefix + "gain", {shape_.heads});
      return;
    }
    const float gain = mode == "learnable" ? weights.floats(prefix + "gain", {}).front()
                                           : static_cast<float>(*spec.number("gain"));
    p_.gain.assign(static_cast<std::size_t>(shape_.heads), gain);
  }

  void resize(Sape2Parameters& p, const Grid& grid) const {
    const bool same = grid.rows == shape_.rows && grid.cols == shape_.cols;
    if (same || resize_ == "clamp") return;
    const bool between = span_ == "between";
    const std::int64_t needed = nn::exact_table_rows(span_, grid.rows, grid.cols);
    if (resize_ == "resample") {
      p.ex = resampled(p.ex, between, needed, shape_.cols, grid.cols);
      p.ey = resampled(p.ey, between, needed, shape_.rows, grid.rows);
      return;
    }
    const std::int64_t more = needed - nn::exact_table_rows(span_, shape_.rows, shape_.cols);
    if (more <= 0) return;
    p.ex = extended(p.ex, between, more);
    p.ey = extended(p.ey, between, more);
  }

  nn::EncodingShape shape_;
  std::string span_, resize_;
  Sape2Parameters p_;  // for the grid trained at
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

}  // namespace sape2::infer
