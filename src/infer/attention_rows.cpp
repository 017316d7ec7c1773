#include "infer/attention_rows.h"

#include <algorithm>
#include <cmath>

namespace sape2::infer {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

const float* token(const kernels::ConstView& view, std::int64_t head, std::int64_t index) {
  return static_cast<const float*>(view.data) + head * view.head_stride + index * view.token_stride;
}

float product(const float* a, const float* b, std::int64_t count) {
  float sum = 0.0F;
  for (std::int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

void softmax(float* row, std::int64_t count) {
  const float largest = *std::max_element(row, row + count);
  float sum = 0.0F;
  for (std::int64_t n = 0; n < count; ++n) sum += row[n] = std::exp(row[n] - largest);
  for (std::int64_t n = 0; n < count; ++n) row[n] /= sum;
}

/// Calls `row(head, index, number of the patch)` for every head and chosen patch.
template <class Row>
void for_each_row(const kernels::Shape& shape, Patches patches, const Row& row) {
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    for (std::size_t r = 0; r < patches.size(); ++r) {
      row(head, head * static_cast<std::int64_t>(patches.size()) + static_cast<std::int64_t>(r),
          patches[r]);
    }
  }
}

/// Attention of chosen patches where `added(head, index, patch, n)` is added to a patch's logits.
template <class Added>
std::vector<float> attention_of(const QueriesAndKeys& tokens, Patches patches, const Added& added) {
  const kernels::Shape& shape = tokens.shape;
  const std::int64_t count = shape.tokens();
  std::vector<float> attention(size(shape.heads * count) * patches.size());
  for_each_row(shape, patches, [&](std::int64_t head, std::int64_t index, std::int64_t patch) {
    float* row = attention.data() + index * count;
    const float* q = token(tokens.q, head, shape.prefix + patch);
    for (std::int64_t n = 0; n < count; ++n) {
      row[n] = tokens.scale * product(q, token(tokens.k, head, n), shape.head_size);
      if (n >= shape.prefix) row[n] += added(head, index, n - shape.prefix);
    }
    softmax(row, count);
  });
  return attention;
}

/// One axis's part of the bias of each chosen patch to every patch.
std::vector<float> bias_part(const kernels::Shape& shape, Patches patches, kernels::Form form,
                             const std::vector<float>& vectors, std::int64_t sets, bool along_x) {
  const std::int64_t length = along_x ? shape.cols : shape.rows, count = shape.patches();
  std::vector<float> bias(size(shape.heads * count) * patches.size());
  for_each_row(shape, patches, [&](std::int64_t head, std::int64_t index, std::int64_t patch) {
    for (std::int64_t set = 0; set < sets; ++set) {
      const float* all = vectors.data() + (set * shape.heads + head) * count * length;
      const float* own = all + patch * length;
      for (std::int64_t n = 0; n < count; ++n) {
        float value = own[along_x ? n % shape.cols : n / shape.cols];
        if (form == kernels::Form::distance) {
          float squares = 0.0F;
          for (std::int64_t c = 0; c < length; ++c) {
            const float away = own[c] - all[n * length + c];
            squares += away * away;
          }
          value = std::sqrt(squares);
        }
        bias[size(index * count + n)] += value;
      }
    }
  });
  return bias;
}

/// Gates and positions that the chosen patches see along their row or column.
void look_along(AxisRows& axis, const QueriesAndKeys& tokens, Patches patches,
                const kernels::Encoding& encoding, bool along_x) {
  const kernels::Shape& shape = tokens.shape;
  const std::int64_t length = along_x ? shape.cols : shape.rows;
  const bool between = encoding.span == kernels::Span::between;
  const std::int64_t origin = between ? (encoding.positions - 1) / 2 : 0;
  const auto low = static_cast<float>(-origin);
  const auto high = static_cast<float>(encoding.positions - 1 - origin);
  const std::size_t numbers = size(shape.heads * length) * patches.size();
  axis.gates.resize(numbers);
  axis.positions.resize(numbers);
  axis.clamped.resize(numbers);
  for_each_row(shape, patches, [&](std::int64_t head, std::int64_t index, std::int64_t patch) {
    const std::int64_t x = patch % shape.cols, y = patch / shape.cols;
    const std::int64_t place = along_x ? x : y;
    const std::int64_t first = along_x ? y * shape.cols : x, step = along_x ? 1 : shape.cols;
    float* gates = axis.gates.data() + index * length;
    float* positions = axis.positions.data() + index * length;
    const float* q = token(tokens.q, head, shape.prefix + patch);
    for (std::int64_t m = 0; m < length; ++m) {
      const float* k = token(tokens.k, head, shape.prefix + first + m * step);
      gates[m] = sigmoid(encoding.gate_scale[head] * product(q, k, shape.head_size) +
                         encoding.gate_offset[head]);
    }
    if (between) {
      positions[place] = 0.0F;
      for (std::int64_t m = place + 1; m < length; ++m) positions[m] = positions[m - 1] + gates[m];
      for (std::int64_t m = place; m-- > 0;) positions[m] = positions[m + 1] - gates[m];
    } else {
      float sum = 0.0F;
      for (std::int64_t m = length; m-- > 0;) positions[m] = sum += gates[m];
    }
    for (std::int64_t m = 0; m < length; ++m) {
      const float inside = std::clamp(positions[m], low, high);
      axis.clamped[size(index * length + m)] = inside != positions[m];
      positions[m] = inside;
    }
  });
}

}  // namespace

AttentionRows plain_rows(const QueriesAndKeys& tokens, Patches patches) {
  AttentionRows rows;
  rows.attention =
      attention_of(tokens, patches, [](std::int64_t, std::int64_t, std::int64_t) { return 0.0F; });
  return rows;
}

AttentionRows biased_rows(const QueriesAndKeys& tokens, Patches patches, const AxisVectors& vectors,
                          kernels::Form form, const kernels::Bias& bias) {
  const kernels::Shape& shape = tokens.shape;
  AttentionRows rows;
  rows.is_distance = form == kernels::Form::distance;
  rows.x.bias = bias_part(shape, patches, form, vectors.x, vectors.sets, true);
  rows.y.bias = bias_part(shape, patches, form, vectors.y, vectors.sets, false);
  rows.bias = rows.x.bias;
  for (std::size_t i = 0; i < rows.bias.size(); ++i) rows.bias[i] += rows.y.bias[i];
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    rows.logit_factor.push_back(bias.gain[head] * (bias.inside ? tokens.scale : 1.0F));
  }
  rows.attention =
      attention_of(tokens, patches, [&](std::int64_t head, std::int64_t index, std::int64_t patch) {
        return rows.logit_factor[size(head)] * rows.bias[size(index * shape.patches() + patch)];
      });
  return rows;
}

void add_positions(AttentionRows& rows, const QueriesAndKeys& tokens, Patches patches,
                   const kernels::Encoding& encoding) {
  look_along(rows.x, tokens, patches, encoding, true);
  look_along(rows.y, tokens, patches, encoding, false);
}

AttentionRows cope_rows(const QueriesAndKeys& tokens, Patches patches,
                        const kernels::CopeEncoding& encoding) {
  const kernels::Shape& shape = tokens.shape;
  const std::int64_t count = shape.tokens();
  const auto last = static_cast<float>(encoding.positions - 1);
  AttentionRows rows;
  const std::size_t numbers = size(shape.heads * count) * patches.size();
  for (auto* values : {&rows.attention, &rows.gates, &rows.positions}) values->resize(numbers);
  rows.clamped.resize(numbers);
  rows.bias.resize(size(shape.heads * shape.patches()) * patches.size());
  rows.logit_factor.assign(size(shape.heads), 1.0F);
  std::vector<float> table(size(encoding.positions));
  for_each_row(shape, patches, [&](std::int64_t head, std::int64_t index, std::int64_t patch) {
    const float* q = token(tokens.q, head, shape.prefix + patch);
    for (std::int64_t p = 0; p < encoding.positions; ++p) {
      table[size(p)] = product(q, encoding.table + p * shape.head_size, shape.head_size);
    }
    float* logits = rows.attention.data() + index * count;
    float sum = 0.0F;
    for (std::int64_t n = count; n-- > 0;) {
      const std::size_t at = size(index * count + n);
      const float scaled = tokens.scale * product(q, token(tokens.k, head, n), shape.head_size);
      rows.gates[at] = sigmoid(scaled);
      sum += rows.gates[at];
      const float position = std::min(sum, last);
      rows.positions[at] = position;
      rows.clamped[at] = position != sum;
      const float below = std::floor(position), weight = position - below;
      const float bias = weight * table[static_cast<std::size_t>(std::ceil(position))] +
                         (1 - weight) * table[static_cast<std::size_t>(below)];
      logits[n] = scaled + bias;
      if (n >= shape.prefix) rows.bias[size(index * shape.patches() + n - shape.prefix)] = bias;
    }
    softmax(logits, count);
  });
  return rows;
}

}  // namespace sape2::infer
