// What is measured of a whole selection, from patches spread over the grid: the numbers in
// captions.
#include "sape2/explain/look.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sape2::explain {
namespace {

constexpr std::int64_t kAllPatches = 64;     // grids of no more are looked at whole
constexpr std::int64_t kSpreadPatches = 24;  // of larger ones

// Lines of n values, the first of which begins at `data`, `stride` apart.
template <typename T>
struct Lines {
  const T* data = nullptr;
  std::size_t count = 0, stride = 0, n = 0;

  std::span<const T> line(std::size_t number) const { return {data + number * stride, n}; }
};

// Of a quantity (heads, R, …): along rows and columns, or in raster order, or none at all.
template <typename T>
std::vector<Lines<T>> lines_of(const std::vector<T>& x, const std::vector<T>& y,
                               const std::vector<T>& raster, const infer::Grid& grid) {
  const auto tokens = static_cast<std::size_t>(grid.tokens());
  const auto rows = static_cast<std::size_t>(grid.rows), cols = static_cast<std::size_t>(grid.cols);
  if (!raster.empty()) {
    return {{raster.data() + grid.prefix, raster.size() / tokens, tokens, rows * cols}};
  }
  if (x.empty()) return {};
  return {{x.data(), x.size() / cols, cols, cols}, {y.data(), y.size() / rows, rows, rows}};
}

// The slope of a curve, and its largest distance from the straight line that fits best.
struct Line {
  double slope = 0, bend = 0;
};

template <typename T>
Line fitted_line(std::span<const T> curve) {
  const double middle = static_cast<double>(curve.size() - 1) / 2;
  double mean = 0, spread = 0, slope = 0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double place = static_cast<double>(i) - middle;
    mean += static_cast<double>(curve[i]) / static_cast<double>(curve.size());
    spread += place * place;
    slope += place * static_cast<double>(curve[i]);
  }
  Line line{.slope = slope / std::max(1e-9, spread)};
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double on_line = mean + line.slope * (static_cast<double>(i) - middle);
    line.bend = std::max(line.bend, std::abs(static_cast<double>(curve[i]) - on_line));
  }
  return line;
}

// Sums of curves over layers and heads, one for each patch.
struct MeanCurves {
  std::size_t n = 0;
  std::vector<double> sums;  // (R, n)

  void add(std::span<const float> curve, std::size_t patch, double share) {
    for (std::size_t i = 0; i < n; ++i) sums[patch * n + i] += share * curve[i];
  }
};

struct Moments {
  double count = 0, sum = 0, squares = 0;

  void add(double value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  double mean() const { return sum / count; }
  double deviation() const { return std::sqrt(std::max(0.0, squares / count - mean() * mean())); }
};

}  // namespace

std::vector<Patch> spread_patches(const infer::Grid& grid) {
  const std::int64_t patches = grid.patches();
  const std::int64_t count = patches <= kAllPatches ? patches : kSpreadPatches;
  std::vector<Patch> spread;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t number = i * patches / count;
    spread.push_back({number / grid.cols, number % grid.cols});
  }
  return spread;
}

LogitFactor Look::logit_factor(const Selection& selection) const {
  require(What::bias);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  LogitFactor factor{kInfinity, -kInfinity};
  for (const std::int64_t layer : selected(selection)) {
    const std::vector<float> heads = rows_of(layer, {{0, 0}}).logit_factor;
    for (std::size_t head = 0; head < heads.size(); ++head) {
      if (selection.head && static_cast<std::size_t>(*selection.head) != head) continue;
      factor.low = std::min<double>(factor.low, heads[head]);
      factor.high = std::max<double>(factor.high, heads[head]);
    }
  }
  return factor;
}

GateSummary Look::gate_summary(const Selection& selection) const {
  require(What::positions);
  const std::vector<Patch> patches = spread_patches(grid_);
  const auto layers = selected(selection);
  const double share =
      1 / (static_cast<double>(layers.size()) * static_cast<double>(selection.head ? 1 : heads()));
  const auto is_chosen = [&](std::size_t line) {  // lines are (heads, R)
    return !selection.head || line / patches.size() == static_cast<std::size_t>(*selection.head);
  };
  GateSummary summary;
  std::vector<MeanCurves> means;
  Moments gates;
  for (const std::int64_t layer : layers) {
    const infer::AttentionRows rows = rows_of(layer, patches);
    const auto curves = lines_of(rows.x.positions, rows.y.positions, rows.positions, grid_);
    means.resize(curves.size());
    for (std::size_t axis = 0; axis < curves.size(); ++axis) {
      means[axis].n = curves[axis].n;
      means[axis].sums.resize(patches.size() * curves[axis].n);
      for (std::size_t line = 0; line < curves[axis].count; ++line) {
        if (!is_chosen(line)) continue;
        const auto curve = curves[axis].line(line);
        means[axis].add(curve, line % patches.size(), share);
        const double bend = fitted_line(curve).bend;
        if (bend <= summary.most_bend) continue;
        summary.most_bend = bend;
        summary.most_bent = {layer, static_cast<std::int64_t>(line / patches.size())};
      }
    }
    for (const auto& lines : lines_of(rows.x.gates, rows.y.gates, rows.gates, grid_)) {
      for (std::size_t line = 0; line < lines.count; ++line) {
        if (!is_chosen(line)) continue;
        for (const float gate : lines.line(line)) gates.add(gate);
      }
    }
  }
  for (const MeanCurves& mean : means) {
    for (std::size_t patch = 0; patch < patches.size(); ++patch) {
      const Line line = fitted_line(std::span<const double>(&mean.sums[patch * mean.n], mean.n));
      summary.spacing += std::abs(line.slope) / static_cast<double>(patches.size() * means.size());
      summary.bend = std::max(summary.bend, line.bend);
    }
  }
  summary.mean = gates.mean();
  summary.deviation = gates.deviation();
  return summary;
}

double Look::clamped_share() const {
  const std::vector<Patch> patches = spread_patches(grid_);
  double clamped = 0, all = 0;
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    const infer::AttentionRows rows = rows_of(layer, patches);
    for (const auto& lines : lines_of(rows.x.clamped, rows.y.clamped, rows.clamped, grid_)) {
      for (std::size_t line = 0; line < lines.count; ++line) {
        clamped += static_cast<double>(std::ranges::count(lines.line(line), 1));
        all += static_cast<double>(lines.n);
      }
    }
  }
  return all > 0 ? clamped / all : 0;
}

}  // namespace sape2::explain
