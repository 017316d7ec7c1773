// What is measured of a whole selection, from patches spread over the grid: the numbers in
// captions.
#include "sape2/nn/vit.h"

#include "explain/inspected_layer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace sape2::explain {
namespace {

constexpr std::int64_t kAllPatches = 64;     // grids of no more are looked at whole
constexpr std::int64_t kSpreadPatches = 24;  // of larger ones

// The slope of each curve (…, n), and its largest distance from the straight line that fits best.
struct Line {
  at::Tensor slope, bend;  // (…)
};

Line fitted_line(const at::Tensor& curves) {
  const std::int64_t n = curves.size(-1);
  const at::Tensor place = at::arange(n, curves.options()) - static_cast<double>(n - 1) / 2;
  const double spread = std::max(1e-9, place.square().sum().item<double>());
  const at::Tensor slope = (curves * place).sum(-1) / spread;
  const at::Tensor line = curves.mean(-1, true) + slope.unsqueeze(-1) * place;
  return {slope, (curves - line).abs().amax(-1)};
}

// The curves of positions, (h, R, n) each: along rows and columns, or in raster order.
std::vector<at::Tensor> curves_of(const ops::AttentionRows& rows, const ops::Grid& grid) {
  if (rows.positions.defined()) {
    return {rows.positions[0].narrow(2, grid.prefix, grid.patches()).to(at::kCPU, at::kDouble)};
  }
  return {rows.x.positions[0].to(at::kCPU, at::kDouble),
          rows.y.positions[0].to(at::kCPU, at::kDouble)};
}

std::vector<at::Tensor> gates_of(const ops::AttentionRows& rows, const ops::Grid& grid) {
  if (rows.gates.defined()) return {rows.gates[0].narrow(2, grid.prefix, grid.patches())};
  return {rows.x.gates[0], rows.y.gates[0]};
}

std::vector<at::Tensor> clamped_of(const ops::AttentionRows& rows, const ops::Grid& grid) {
  if (rows.clamped.defined()) return {rows.clamped[0].narrow(2, grid.prefix, grid.patches())};
  if (rows.x.clamped.defined()) return {rows.x.clamped[0], rows.y.clamped[0]};
  return {};
}

}  // namespace

std::vector<Patch> spread_patches(const ops::Grid& grid) {
  const std::int64_t patches = grid.patches();
  const std::int64_t count = patches <= kAllPatches ? patches : kSpreadPatches;
  std::vector<Patch> spread;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t number = i * patches / count;
    spread.push_back({number / grid.cols, number % grid.cols});
  }
  return spread;
}

LogitFactor Inspection::logit_factor(const Selection& selection) const {
  const at::NoGradGuard no_grad;
  require(What::bias);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  LogitFactor factor{kInfinity, -kInfinity};
  for (const Layer* layer : selected(selection)) {
    const at::Tensor heads = layer->encoding->inspect(layer->q, layer->k, grid_, {0}).logit_factor;
    const at::Tensor chosen = selection.head ? heads[*selection.head] : heads;
    factor.low = std::min(factor.low, chosen.min().item<double>());
    factor.high = std::max(factor.high, chosen.max().item<double>());
  }
  return factor;
}

GateSummary Inspection::gate_summary(const Selection& selection) const {
  const at::NoGradGuard no_grad;
  require(What::positions);
  const ops::PatchList patches = numbers_of(spread_patches(grid_), grid_);
  const auto layers = selected(selection);
  std::vector<at::Tensor> mean_curves, gates;
  GateSummary summary;
  for (const Layer* layer : layers) {
    const ops::AttentionRows rows = layer->encoding->inspect(layer->q, layer->k, grid_, patches);
    const auto curves = curves_of(rows, grid_);
    mean_curves.resize(curves.size());
    const auto number = static_cast<std::int64_t>(layer - layers_.data());
    for (std::size_t i = 0; i < curves.size(); ++i) {
      const at::Tensor bends = fitted_line(curves[i]).bend.amax(1);  // (h)
      for (std::int64_t head = 0; head < heads(); ++head) {
        if (selection.head && *selection.head != head) continue;
        const auto bend = bends[head].item<double>();
        if (bend > summary.most_bend) {
          summary.most_bend = bend;
          summary.most_bent = {number, head};
        }
      }
      const at::Tensor one = selection.head ? curves[i][*selection.head] : curves[i].mean(0);
      mean_curves[i] = mean_curves[i].defined() ? mean_curves[i] + one : one;
    }
    for (const at::Tensor& one : gates_of(rows, grid_)) {
      const at::Tensor chosen = selection.head ? one[*selection.head] : one;
      gates.push_back(chosen.flatten().to(at::kCPU, at::kDouble));
    }
  }
  double slopes = 0;
  for (const at::Tensor& sum : mean_curves) {
    const Line line = fitted_line(sum / static_cast<double>(layers.size()));
    slopes += line.slope.abs().mean().item<double>();
    summary.bend = std::max(summary.bend, line.bend.max().item<double>());
  }
  summary.spacing = slopes / static_cast<double>(mean_curves.size());
  const at::Tensor all = at::cat(gates);
  summary.mean = all.mean().item<double>();
  summary.deviation = all.std(/*unbiased=*/false).item<double>();
  return summary;
}

double Inspection::clamped_share() const {
  const at::NoGradGuard no_grad;
  const ops::PatchList patches = numbers_of(spread_patches(grid_), grid_);
  double clamped = 0, all = 0;
  for (const Layer& layer : layers_) {
    const ops::AttentionRows rows = layer.encoding->inspect(layer.q, layer.k, grid_, patches);
    for (const at::Tensor& one : clamped_of(rows, grid_)) {
      clamped += one.sum().item<double>();
      all += static_cast<double>(one.numel());
    }
  }
  return all > 0 ? clamped / all : 0;
}

}  // namespace sape2::explain
