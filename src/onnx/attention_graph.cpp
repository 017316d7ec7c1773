// Attention as plain products, with every encoding.

#include "nn/encodings/tables.h"
#include "onnx/model_graph.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

namespace sape2::onnx {
namespace {

float scale_of(const Export& to) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(to.vit().head_size())));
}

// softmax(scale · q kᵀ + bias) v.
Value attended(const Export& to, const Heads& heads, const Value* bias = nullptr) {
  Graph& graph = to.graph;
  const Value q = graph.multiply(heads.q, graph.number(scale_of(to)));
  Value logits = graph.product(q, graph.transposed(heads.k, {0, 1, 3, 2}));
  if (bias != nullptr) logits = graph.add(logits, *bias);
  return graph.product(graph.softmax(logits, -1), heads.v);
}

Value plain(const Export& to, const Heads& heads, const std::string&) {
  return attended(to, heads);
}

Value sape2(const Export& to, const Heads& heads, const std::string& parameters) {
  const Value bias = with_prefix(to, sape2_bias(to, heads, parameters));
  return attended(to, heads, &bias);
}

// ---- relative positions

Value rpe(const Export& to, const Heads& heads, const std::string& parameters) {
  Graph& graph = to.graph;
  const auto vectors = [&](const std::string& name, std::int64_t n) {
    const at::Tensor table = nn::resampled_offsets(to.parameter(parameters + name), 1, n - 1);
    const at::Tensor by_place = table.index_select(1, nn::offset_rows(n, table).flatten());
    return by_place.view({table.size(0), n, n}) * scale_of(to);
  };
  const std::int64_t rows = to.grid.rows, cols = to.grid.cols;
  const Value x = to.constant("x", vectors("rx", cols).view({-1, 1, cols, 1, cols}));
  const Value y = to.constant("y", vectors("ry", rows).view({-1, rows, 1, rows, 1}));
  const std::int64_t patches = to.grid.patches();
  const Value bias = graph.reshaped(graph.add(y, x), {1, to.vit().heads, patches, patches});
  const Value of_all = with_prefix(to, bias);
  return attended(to, heads, &of_all);
}

template <bool inside>
Value contextual_rpe(const Export& to, const Heads& heads, const std::string& parameters) {
  const auto by_offset = [&](const std::string& name, std::int64_t n) {
    const at::Tensor table = nn::resampled_offsets(to.parameter(parameters + name), 0, n - 1);
    const at::Tensor by_place = table.index_select(0, nn::offset_rows(n, table).flatten());
    return by_place.view({n, n, table.size(1)}) * (inside ? scale_of(to) : 1.0F);
  };
  const auto [x, y] =
      contextual_vectors(to, heads.q, by_offset("tx", to.grid.cols), by_offset("ty", to.grid.rows));
  const Value bias = with_prefix(to, direct_bias(to, x, y));
  return attended(to, heads, &bias);
}

// ---- rotary positions

// Adjacent channels (a, b) become (a cos − b sin, a sin + b cos). The operator itself says the
// angles: it turns (1, 0) into (cos, sin).
template <typename Turn>
Value rotary(const Export& to, const Heads& heads, const Turn& turn) {
  Graph& graph = to.graph;
  const nn::ViTConfig& vit = to.vit();
  at::Tensor unit = at::zeros({1, vit.heads, to.grid.tokens(), vit.head_size()});
  unit.slice(3, 0, c10::nullopt, 2).fill_(1);
  const at::Tensor turned = turn(unit).unflatten(3, std::vector<std::int64_t>{-1, 2});
  const at::Tensor cosine = turned.select(4, 0), sine = turned.select(4, 1);
  const Value cosines = to.constant("cos", at::stack({cosine, cosine}, 4).flatten(3));
  const Value sines = to.constant("sin", at::stack({-sine, sine}, 4).flatten(3));
  Shape swapped;
  for (std::int64_t channel = 0; channel < vit.head_size(); ++channel) {
    swapped.push_back(channel ^ 1);
  }
  const auto rotated = [&](const Value& a) {
    const Value other = graph.node("Gather", {a, graph.integers(swapped)}, {{"axis", 3}});
    return graph.add(graph.multiply(a, cosines), graph.multiply(other, sines));
  };
  return attended(to, {rotated(heads.q), rotated(heads.k), heads.v});
}

Value rope(const Export& to, const Heads& heads, const std::string&) {
  return rotary(to, heads, [&](const at::Tensor& x) { return ops::rope(x, to.grid.prefix); });
}

Value rope2d(const Export& to, const Heads& heads, const std::string&) {
  return rotary(to, heads, [&](const at::Tensor& x) { return ops::rope2d(x, to.grid); });
}

Value rope2d_mixed(const Export& to, const Heads& heads, const std::string& parameters) {
  const at::Tensor fx = to.parameter(parameters + "fx"), fy = to.parameter(parameters + "fy");
  return rotary(to, heads,
                [&](const at::Tensor& x) { return ops::rope2d_mixed(x, fx, fy, to.grid); });
}

// ---- contextual positions

Value cope(const Export& to, const Heads& heads, const std::string& parameters) {
  Graph& graph = to.graph;
  at::Tensor table = to.parameter(parameters + "e");
  if (to.encoding().choice("bias") == "inside") table = table * scale_of(to);
  const std::int64_t rows = table.size(0);
  const Value q = graph.multiply(heads.q, graph.number(scale_of(to)));
  const Value products = graph.product(q, graph.transposed(heads.k, {0, 1, 3, 2}));
  const Positions positions =
      positions_of(to, graph.node("Sigmoid", {products}), false, to.grid.tokens(), rows);
  const Value read = graph.product(heads.q, to.constant("table", table.t()));
  const Value bias = interpolated(graph, read, positions, rows);
  return graph.product(graph.softmax(graph.add(products, bias), -1), heads.v);
}

using Writer = Value (*)(const Export&, const Heads&, const std::string&);

const std::map<std::string, Writer, std::less<>> kWriters{
    {"none", plain},
    {"ape", plain},
    {"sinusoidal", plain},
    {"sinusoidal2d", plain},
    {"lape", plain},
    {"rpe", rpe},
    {"rpe-shaw", contextual_rpe<true>},
    {"rpe-decomposed", contextual_rpe<false>},
    {"rope", rope},
    {"rope2d", rope2d},
    {"rope2d-mixed", rope2d_mixed},
    {"cope", cope},
    {"sape2-q", sape2},
    {"sape2-k", sape2},
    {"sape2-qk", sape2},
    {"sape2-rel-q", sape2},
    {"sape2-rel-k", sape2},
    {"sape2-rel-qk", sape2},
};

}  // namespace

bool knows_encoding(const nn::EncodingSpec& spec) {
  return kWriters.contains(spec.name());
}

Value attention(const Export& to, const Heads& heads, const std::string& parameters) {
  return kWriters.at(to.encoding().name())(to, heads, parameters);
}

Value with_prefix(const Export& to, const Value& bias) {
  const std::int64_t prefix = to.grid.prefix;
  if (prefix == 0) return bias;
  return to.graph.node("Pad", {bias, to.graph.integers({0, 0, prefix, prefix, 0, 0, 0, 0})});
}

Value patch_rows(const Export& to, const Value& a) {
  const ops::Grid& grid = to.grid;
  const Value patches = grid.prefix == 0 ? a : to.graph.part(a, 2, grid.prefix, grid.tokens());
  return to.graph.reshaped(patches, {0, 0, grid.rows, grid.cols, to.vit().head_size()});
}

Value direct_bias(const Export& to, const Value& ux, const Value& uy) {
  Graph& graph = to.graph;
  const std::int64_t rows = to.grid.rows, cols = to.grid.cols, patches = to.grid.patches();
  const Value x = graph.reshaped(ux, {0, 0, patches, 1, cols});
  const Value y = graph.reshaped(uy, {0, 0, patches, rows, 1});
  return graph.reshaped(graph.add(y, x), {0, 0, patches, patches});
}

std::pair<Value, Value> contextual_vectors(const Export& to, const Value& a, const at::Tensor& x,
                                           const at::Tensor& y) {
  Graph& graph = to.graph;
  const std::int64_t rows = to.grid.rows, cols = to.grid.cols, patches = to.grid.patches();
  const Value in_rows = patch_rows(to, a);  // (B, h, rows, cols, d)
  const Value in_columns = graph.transposed(in_rows, {0, 1, 3, 2, 4});
  // One product for each column: all of its patches, which lie at the same offsets.
  const Value of_x = graph.product(in_columns, to.constant("x", x.transpose(-1, -2)));
  const Value of_y = graph.product(in_rows, to.constant("y", y.transpose(-1, -2)));
  return {graph.reshaped(graph.transposed(of_x, {0, 1, 3, 2, 4}), {0, 0, patches, cols}),
          graph.reshaped(of_y, {0, 0, patches, rows})};
}

}  // namespace sape2::onnx
