// Entry points (sape2/kernels/cuda_training.h): which sizes are served, in tiles of how many
// columns.
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/linear/kernels.h"
#include "kernels/cuda/training/columns.h"

#include <algorithm>

namespace sape2::kernels::cuda {
namespace {

constexpr int kGradientColumns[] = {256, 192};
// Rounds of tiles on all multiprocessors in which a launch's uneven end no longer matters much.
constexpr std::int64_t kRounds = 2;
constexpr std::int64_t kSmallestSide = 128, kFewestRows = 1024;

std::int64_t tiles_of(const WeightGradient* gradients, std::int64_t count, int columns) {
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < count; ++i)
    tiles += linear::gradient_tiles(gradients[i].outputs, gradients[i].inputs, columns);
  return tiles;
}

int columns_for(const WeightGradient* gradients, std::int64_t count) {
  const auto time = [&](int columns) {
    return linear::gradient_time(tiles_of(gradients, count, columns), columns, multiprocessors());
  };
  return *std::min_element(std::begin(kGradientColumns), std::end(kGradientColumns),
                           [&](int a, int b) { return time(a) < time(b); });
}

int columns_for(const linear::Product& p) {
  return linear::resident_columns(p.rows, p.depth, p.width, multiprocessors());
}

bool has_gradient_kernel(std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
  return linear::can_count(rows) && linear::is_aligned(outputs) && linear::is_aligned(inputs) &&
         is_sm90a();
}

void refuse_unless(bool served, const char* what, std::int64_t rows, std::int64_t width) {
  if (!served)
    throw Error(std::string(what) + ": no kernel of this device serves a matrix of " +
                std::to_string(rows) + " × " + std::to_string(width) +
                "; ask first whether it is served");
}

}  // namespace

bool linear_serves(std::int64_t depth, std::int64_t width) {
  return linear::is_resident(depth, width) && is_sm90a();
}

void linear_gelu(const LinearGelu& p, void* stream) {
  refuse_unless(linear::can_count(p.rows) && linear_serves(p.inputs, p.outputs), "linear_gelu",
                p.rows, p.outputs);
  const linear::Product product{p.rows, p.outputs, p.inputs, p.x, p.weight};
  linear::gelu(columns_for(product), product, p.bias, p.out, p.derivative,
               static_cast<cudaStream_t>(stream));
}

void linear_gelu_backward(const LinearGeluGradient& p, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const partials = static_cast<float*>(p.workspace);
  refuse_unless(linear::can_count(p.rows) && linear_serves(p.outputs, p.inputs),
                "linear_gelu_backward", p.rows, p.inputs);
  const linear::Product product{p.rows, p.inputs, p.outputs, p.dy, p.weight};
  const int blocks =
      linear::times_derivative(columns_for(product), product, p.derivative, p.dx, partials, on);
  add_partial_columns(DType::bfloat16, partials, blocks, 1, p.inputs, {{p.dbias}}, on);
}

bool weight_gradient_serves(std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
  return rows >= kFewestRows && outputs >= kSmallestSide && inputs >= kSmallestSide &&
         has_gradient_kernel(rows, outputs, inputs);
}

bool weight_gradients_suffice(const WeightGradient* gradients, std::int64_t count) {
  return count >= linear::kMostWeightGradients ||
         tiles_of(gradients, count, kGradientColumns[0]) >= kRounds * multiprocessors();
}

void weight_gradients(const WeightGradient* gradients, std::int64_t count, void* stream) {
  for (std::int64_t i = 0; i < count; ++i) {
    const WeightGradient& g = gradients[i];
    refuse_unless(has_gradient_kernel(g.rows, g.outputs, g.inputs), "weight_gradients", g.outputs,
                  g.inputs);
  }
  for (std::int64_t first = 0; first < count; first += linear::kMostWeightGradients) {
    const auto some = std::min<std::int64_t>(linear::kMostWeightGradients, count - first);
    linear::weight_gradients(columns_for(gradients + first, some), gradients + first,
                             static_cast<int>(some), static_cast<cudaStream_t>(stream));
  }
}

}  // namespace sape2::kernels::cuda
