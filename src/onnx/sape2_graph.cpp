// The two stages of SaPE² as standard operators.
#include "nn/encodings/sape2_tables.h"
#include "onnx/model_graph.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::onnx {
namespace {

// Ones where `relation(j, m)` holds.
template <typename Relation>
Value ones_where(const Export& to, const std::string& name, std::int64_t n,
                 const Relation& relation) {
  const at::Tensor place = at::arange(n);
  const at::Tensor ones = relation(place.unsqueeze(1), place.unsqueeze(0)).to(at::kFloat);
  const std::span values(ones.data_ptr<float>(), static_cast<std::size_t>(n * n));
  return to.graph.shared(name + " " + std::to_string(n), {n, n}, values);
}

// A layer's settings as tensors that meet `[batch, heads, lines, n, n]`: one number, or one a head.
struct Settings {
  std::string mode;
  bool between = false;
  bool distance = false;
  bool paths = false;
  bool open = false;
  at::Tensor gate_scale, gate_offset, factor;  // (), or (heads)
  at::Tensor ex, ey;                           // ([2,] [heads,] M, d), for this grid
};

Settings settings_of(const Export& to, const std::string& parameters) {
  const nn::EncodingSpec& spec = to.encoding();
  const double root = std::sqrt(static_cast<double>(to.vit().head_size()));
  Settings settings{.mode = spec.name().substr(spec.name().rfind('-') + 1),
                    .between = spec.choice("span") == "between",
                    .distance = spec.choice("form") == "distance",
                    .paths = spec.choice("form") == "paths",
                    .open = spec.choice("gates") == "open"};
  if (spec.choice("gates") == "learnable") {
    settings.gate_scale = to.parameter(parameters + "gate_alpha") / root;
    settings.gate_offset = to.parameter(parameters + "gate_beta");
  } else {
    settings.gate_scale = at::full({}, spec.number("gate-scale").value_or(1 / root));
    settings.gate_offset = at::full({}, spec.number("gate-offset").value_or(0));
  }
  const at::Tensor gain = spec.choice("gain-mode") == "fixed" ? at::full({}, *spec.number("gain"))
                                                              : to.parameter(parameters + "gain");
  settings.factor = spec.choice("bias") == "inside" ? gain / root : gain;
  std::tie(settings.ex, settings.ey) = nn::resized_tables(
      to.parameter(parameters + "ex"), to.parameter(parameters + "ey"), spec.choice("span"),
      spec.choice("resize"), to.vit().encoding_shape(), to.grid);
  return settings;
}

// One number, or one a head before so many further axes.
Value per_head(const Export& to, const std::string& name, const at::Tensor& values, int axes) {
  if (values.dim() == 0) return to.constant(name, values);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(axes) + 1, 1);
  shape.front() = -1;
  return to.constant(name, values.view(shape));
}

Value times_factor(const Export& to, const Settings& settings, const Value& x, int axes) {
  if (settings.factor.dim() == 0 && settings.factor.item<double>() == 1) return x;
  return to.graph.multiply(x, per_head(to, "factor", settings.factor, axes));
}

// The gates of lines of n patches, `[batch, heads, lines, n, n]`.
Value gates_of(const Export& to, const Settings& settings, const Value& q, const Value& k) {
  Graph& graph = to.graph;
  const Value products = graph.product(q, graph.transposed(k, {0, 1, 2, 4, 3}));
  const Value scaled = graph.multiply(products, per_head(to, "gate_scale", settings.gate_scale, 3));
  return graph.node("Sigmoid",
                    {graph.add(scaled, per_head(to, "gate_offset", settings.gate_offset, 3))});
}

// The vectors of one axis, `[batch, heads, lines, n, n]`.
Value axis_vectors(const Export& to, const Settings& settings, const Value& gates, const Value& a,
                   const at::Tensor& table, std::int64_t n) {
  Graph& graph = to.graph;
  const std::int64_t rows = table.size(-2);
  const Positions positions = positions_of(to, gates, settings.between, n, rows);
  const at::Tensor columns = table.transpose(-1, -2);  // (…, d, M)
  const Value read =
      graph.product(a, to.constant("table", columns.dim() == 3 ? columns.unsqueeze(1) : columns));
  return interpolated(graph, read, positions, rows);
}

// Open gates count every patch in full: positions do not depend on the image, so that the tables
// can be read at once. (…, n, n, d): the row for each pair of places.
at::Tensor rows_of_open_gates(const Settings& settings, const at::Tensor& table, std::int64_t n) {
  const at::Tensor place = at::arange(n);
  const std::int64_t last = table.size(-2) - 1;
  const at::Tensor position = settings.between ? place.unsqueeze(0) - place.unsqueeze(1) + last / 2
                                               : (n - place).unsqueeze(0).expand({n, n});
  const at::Tensor row = position.clamp(0, last).flatten();
  return table.index_select(-2, row).unflatten(-2, std::vector<std::int64_t>{n, n});
}

// The axis vectors `[batch, heads, patches, cols]` and `[…, rows]` that `a` reads.
std::pair<Value, Value> vectors_of(const Export& to, const Settings& settings, const Heads& heads,
                                   const Value& a, const at::Tensor& ex, const at::Tensor& ey) {
  Graph& graph = to.graph;
  const std::int64_t rows = to.grid.rows, cols = to.grid.cols, patches = to.grid.patches();
  if (settings.open) {
    return contextual_vectors(to, a, rows_of_open_gates(settings, ex, cols),
                              rows_of_open_gates(settings, ey, rows));
  }
  const auto in_columns = [&](const Value& x) { return graph.transposed(x, {0, 1, 3, 2, 4}); };
  const Value q = patch_rows(to, heads.q), k = patch_rows(to, heads.k), read = patch_rows(to, a);
  const auto along_x = [&] {
    const Graph::Scope scope(graph, "x");
    return axis_vectors(to, settings, gates_of(to, settings, q, k), read, ex, cols);
  };
  const auto along_y = [&] {
    const Graph::Scope scope(graph, "y");
    const Value gates = gates_of(to, settings, in_columns(q), in_columns(k));
    return in_columns(axis_vectors(to, settings, gates, in_columns(read), ey, rows));
  };
  return {graph.reshaped(along_x(), {0, 0, patches, cols}),
          graph.reshaped(along_y(), {0, 0, patches, rows})};
}

// Distances of all pairs of `[batch, heads, patches, n]`, entry by entry: nothing is larger than
// the result, and equal vectors are exactly 0 apart.
Value distances(Graph& graph, const Value& vectors, std::int64_t patches, std::int64_t n) {
  Value squares;
  for (std::int64_t i = 0; i < n; ++i) {
    const Value entry = graph.part(vectors, 3, i, i + 1);  // (B, h, patches, 1)
    const Value other = graph.reshaped(entry, {0, 0, 1, patches});
    const Value difference = graph.subtract(entry, other);
    const Value square = graph.multiply(difference, difference);
    squares = i == 0 ? square : graph.add(squares, square);
  }
  return graph.node("Sqrt", {squares});
}

Value part_bias(const Export& to, const Settings& settings, const Heads& heads, const Value& a,
                const at::Tensor& ex, const at::Tensor& ey) {
  Graph& graph = to.graph;
  const auto [ux, uy] = vectors_of(to, settings, heads, a, ex, ey);
  if (!settings.distance) {
    const Value bias =
        direct_bias(to, times_factor(to, settings, ux, 2), times_factor(to, settings, uy, 2));
    if (!settings.paths) return bias;
    // The key's vectors at the query's place are the same, the other way round.
    return graph.multiply(graph.add(bias, graph.transposed(bias, {0, 1, 3, 2})),
                          graph.number(0.5F));
  }
  const std::int64_t patches = to.grid.patches();
  const Value bias = graph.add(distances(graph, ux, patches, to.grid.cols),
                               distances(graph, uy, patches, to.grid.rows));
  return times_factor(to, settings, bias, 2);
}

}  // namespace

Positions positions_of(const Export& to, const Value& gates, bool between, std::int64_t n,
                       std::int64_t table_rows) {
  Graph& graph = to.graph;
  const auto from_m_on = [&] {
    return ones_where(to, "sum_from", n, [](const auto& j, const auto& m) { return j.ge(m); });
  };
  if (!between) {
    const Value sums = graph.product(gates, from_m_on());
    return {graph.clamped(sums, 0, static_cast<float>(table_rows - 1)), 0};
  }
  const Value up_to_m =
      ones_where(to, "sum_to", n, [](const auto& j, const auto& m) { return j.le(m); });
  const Value after =
      ones_where(to, "after", n, [](const auto& i, const auto& j) { return j.gt(i); });
  const Value before =
      ones_where(to, "before", n, [](const auto& i, const auto& j) { return j.lt(i); });
  const Value right = graph.product(graph.multiply(gates, after), up_to_m);
  const Value left = graph.product(graph.multiply(gates, before), from_m_on());
  const std::int64_t farthest = (table_rows - 1) / 2;
  const auto end = static_cast<float>(farthest);
  return {graph.clamped(graph.subtract(right, left), -end, end), farthest};
}

Value interpolated(Graph& graph, const Value& table, const Positions& positions,
                   std::int64_t table_rows) {
  const Value below = graph.node("Floor", {positions.value});
  const auto column = [&](const Value& place) {
    const Value row = graph.add(place, graph.number(static_cast<float>(positions.origin)));
    // Whatever a position that is no number becomes as an integer, it stays inside the table.
    const Value index = graph.node("Clip", {graph.node("Cast", {row}, {{"to", 7}}),
                                            graph.integer(0), graph.integer(table_rows - 1)});
    return graph.node("GatherElements", {table, index}, {{"axis", -1}});
  };
  const Value low = column(below), high = column(graph.node("Ceil", {positions.value}));
  const Value weight = graph.subtract(positions.value, below);
  return graph.add(low, graph.multiply(weight, graph.subtract(high, low)));
}

Value sape2_bias(const Export& to, const Heads& heads, const std::string& parameters) {
  const Settings settings = settings_of(to, parameters);
  if (settings.mode != "qk") {
    const Value& a = settings.mode == "q" ? heads.q : heads.k;
    return part_bias(to, settings, heads, a, settings.ex, settings.ey);
  }
  const auto part = [&](const std::string& name, const Value& a, std::int64_t number) {
    const Graph::Scope scope(to.graph, name);
    return part_bias(to, settings, heads, a, settings.ex[number], settings.ey[number]);
  };
  const Value of_q = part("q", heads.q, 0);
  return to.graph.add(of_q, part("k", heads.k, 1));
}

}  // namespace sape2::onnx
