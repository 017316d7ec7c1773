#include "infer/attention_rows.h"
#include "infer/encoding.h"
#include "infer/encodings/sape2_attention.h"
#include "infer/encodings/tables.h"

#include <algorithm>
#include <limits>

namespace sape2::infer {
namespace {

/// A bias by offset that does not depend on content: the direct form on vectors that all images
/// share.
class RpeAttention : public GridAttention {
 public:
  /// `x` and `y` are (heads, offsets, 1).
  RpeAttention(const Grid& grid, const Table& x, const Table& y)
      : gain_(static_cast<std::size_t>(x.groups), 1.0F) {
    for (std::int64_t head = 0; head < x.groups; ++head) {
      for (std::int64_t patch = 0; patch < grid.patches(); ++patch) {
        append(vectors_.x, x, head, patch % grid.cols, grid.cols);
        append(vectors_.y, y, head, patch / grid.cols, grid.rows);
      }
    }
  }

  void attend(const kernels::AttentionInputs& inputs, const kernels::AttentionOutputs& outputs,
              const kernels::Executor& executor) const override {
    kernels::axis_bias_attention_forward(
        inputs, {.x = vectors_.x.data(), .y = vectors_.y.data(), .shared = true},
        kernels::Form::direct, bias(), outputs, executor);
  }

  AttentionRows inspect(const QueriesAndKeys& tokens, Patches patches) const override {
    return biased_rows(tokens, patches, vectors_, kernels::Form::direct, bias());
  }

 private:
  // What a patch at `place` of an axis sees along it.
  static void append(std::vector<float>& vectors, const Table& table, std::int64_t head,
                     std::int64_t place, std::int64_t length) {
    const float* first = table.row(head, length - 1 - place);
    vectors.insert(vectors.end(), first, first + length);
  }

  kernels::Bias bias() const { return {gain_.data(), /*inside=*/true}; }

  std::vector<float> gain_;  // (heads)
  AxisVectors vectors_;
};

class RpeLayer : public LayerEncoding {
 public:
  RpeLayer(const nn::EncodingSpec&, const nn::EncodingShape& shape, Weights& weights,
           const std::string& prefix)
      : x_(by_head(weights, prefix + "rx", shape.heads, 2 * shape.cols - 1)),
        y_(by_head(weights, prefix + "ry", shape.heads, 2 * shape.rows - 1)) {}

  std::unique_ptr<GridAttention> on(const Grid& grid) const override {
    return std::make_unique<RpeAttention>(grid, resampled_offsets(x_, grid.cols - 1),
                                          resampled_offsets(y_, grid.rows - 1));
  }

 private:
  static Table by_head(Weights& weights, const std::string& name, std::int64_t heads,
                       std::int64_t offsets) {
    return {heads, offsets, 1, weights.floats(name, {heads, offsets})};
  }

  Table x_, y_;  // (heads, offsets, 1)
};

/// q_i·(tx[Δx] + ty[Δy]): what SaPE² computes in mode Q where all gates are open and positions
/// count from patch to patch, so that it runs on the same kernel.
template <bool inside>
class ContextualRpeLayer : public LayerEncoding {
 public:
  ContextualRpeLayer(const nn::EncodingSpec&, const nn::EncodingShape& shape, Weights& weights,
                     const std::string& prefix)
      : heads_(shape.heads),
        x_(table(weights, prefix + "tx", 2 * shape.cols - 1, shape.head_size())),
        y_(table(weights, prefix + "ty", 2 * shape.rows - 1, shape.head_size())) {}

  std::unique_ptr<GridAttention> on(const Grid& grid) const override {
    const std::int64_t longest = std::max(grid.rows, grid.cols) - 1;
    Sape2Parameters p;
    p.source = kernels::Source::q;
    p.span = kernels::Span::between;
    p.form = kernels::Form::direct;
    p.ex = centred(resampled_offsets(x_, grid.cols - 1), longest);
    p.ey = centred(resampled_offsets(y_, grid.rows - 1), longest);
    p.gate_scale.assign(static_cast<std::size_t>(heads_), 0.0F);
    p.gate_offset.assign(static_cast<std::size_t>(heads_), std::numeric_limits<float>::infinity());
    p.gain.assign(static_cast<std::size_t>(heads_), 1.0F);
    p.inside = inside;
    p.shows_positions = false;
    return std::make_unique<Sape2Attention>(std::move(p));
  }

 private:
  static Table table(Weights& weights, const std::string& name, std::int64_t offsets,
                     std::int64_t head_size) {
    return {1, offsets, head_size, weights.floats(name, {offsets, head_size})};
  }

  // Both axes' tables have as many rows; nobody reads those beyond the axis.
  static Table centred(const Table& table, std::int64_t longest) {
    Table wide = empty_table(1, 2 * longest + 1, table.width);
    std::ranges::copy(table.numbers, wide.row(0, longest - (table.rows - 1) / 2));
    return wide;
  }

  std::int64_t heads_;
  Table x_, y_;  // (1, offsets, head size)
};

}  // namespace

std::vector<EncodingMaker> makers_of_rpe() {
  return {{"rpe", make_per_layer<RpeLayer>},
          {"rpe-shaw", make_per_layer<ContextualRpeLayer<true>>},
          {"rpe-decomposed", make_per_layer<ContextualRpeLayer<false>>}};
}

}  // namespace sape2::infer
