// Entry points (sape2/kernels/cuda_training.h): which sizes are served, in tiles of how many
// columns.
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/linear/kernels.h"
#include "kernels/cuda/training/columns.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace sape2::kernels::cuda {
namespace {

constexpr int kGradientColumns[] = {256, 192};

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

void refuse_if(std::string_view reason, const char* what, std::int64_t rows, std::int64_t width) {
  if (reason.empty() && !is_sm90a()) reason = "it runs on GPUs for which it is compiled for sm_90a";
  if (!reason.empty())
    throw Error(std::string(what) + " does not serve a matrix of " + std::to_string(rows) + " × " +
                std::to_string(width) + ": " + std::string(reason));
}

}  // namespace

bool linear_serves(std::int64_t rows, std::int64_t depth, std::int64_t width) {
  return linear::why_not_resident(rows, depth, width).empty() && linear::resident_pays(rows) &&
         is_sm90a();
}

void linear_gelu(const LinearGelu& p, void* stream) {
  refuse_if(linear::why_not_resident(p.rows, p.inputs, p.outputs), "linear_gelu", p.rows,
            p.outputs);
  const linear::Product product{p.rows, p.outputs, p.inputs, p.x, p.weight};
  linear::gelu(columns_for(product), product, p.bias, p.out, p.derivative,
               static_cast<cudaStream_t>(stream));
}

void linear_gelu_backward(const LinearGeluGradient& p, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const partials = static_cast<float*>(p.workspace);
  refuse_if(linear::why_not_resident(p.rows, p.outputs, p.inputs), "linear_gelu_backward", p.rows,
            p.inputs);
  const linear::Product product{p.rows, p.inputs, p.outputs, p.dy, p.weight};
  const int blocks =
      linear::times_derivative(columns_for(product), product, p.derivative, p.dx, partials, on);
  add_partial_columns(DType::bfloat16, partials, blocks, 1, p.inputs, {{p.dbias}}, on);
}

bool weight_gradient_serves(std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
  return linear::why_not_gradient(rows, outputs, inputs).empty() &&
         linear::gradient_pays(rows, outputs, inputs) && is_sm90a();
}

bool weight_gradients_suffice(const WeightGradient* gradients, std::int64_t count) {
  return linear::gradients_suffice(tiles_of(gradients, count, kGradientColumns[0]), count,
                                   multiprocessors());
}

void weight_gradients(const WeightGradient* gradients, std::int64_t count, void* stream) {
  for (std::int64_t i = 0; i < count; ++i) {
    const WeightGradient& g = gradients[i];
    refuse_if(linear::why_not_gradient(g.rows, g.outputs, g.inputs), "weight_gradients", g.outputs,
              g.inputs);
  }
  for (std::int64_t first = 0; first < count; first += linear::kMostWeightGradients) {
    const auto some = std::min<std::int64_t>(linear::kMostWeightGradients, count - first);
    linear::weight_gradients(columns_for(gradients + first, some), gradients + first,
                             static_cast<int>(some), static_cast<cudaStream_t>(stream));
  }
}

}  // namespace sape2::kernels::cuda
