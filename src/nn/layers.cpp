#include "nn/layers.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::nn {
namespace {

constexpr double kLinearDeviation = 0.02;

}  // namespace

Linear::Linear(ParameterScope scope, int64_t in, int64_t out)
    : weight_(scope.parameter("weight", {out, in}, fill_truncated_normal(kLinearDeviation),
                              WeightDecay::applies)),
      bias_(scope.parameter("bias", {out}, fill_constant(0))) {}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return ops::linear(x, weight_, bias_);
}

ops::Branch Linear::branch(const at::Tensor& x) const {
  return ops::linear_branch(x, weight_, bias_);
}

LayerNorm::LayerNorm(ParameterScope scope, int64_t width)
    : weight_(scope.parameter("weight", {width}, fill_constant(1))),
      bias_(scope.parameter("bias", {width}, fill_constant(0))) {}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return (*this)(Stream{x}).second;
}

std::pair<at::Tensor, at::Tensor> LayerNorm::operator()(const Stream& stream) const {
  return ops::add_and_norm(stream.tokens, stream.pending, weight_, bias_, kLayerNormEps);
}

LayerScale::LayerScale(ParameterScope scope, int64_t width, double start)
    : gamma_(scope.parameter("gamma", {width}, fill_constant(start))) {}

at::Tensor LayerScale::operator()(const at::Tensor& x) const {
  return x * gamma_;
}

PatchEmbed::PatchEmbed(const ParameterScope& scope, int64_t channels, int64_t patch_height,
                       int64_t patch_width, int64_t width) {
  ParameterScope proj = scope.child("proj");
  // LibTorch's own start for a convolution, which timm keeps.
  const double inputs = static_cast<double>(channels * patch_height * patch_width);
  const Fill fill = fill_uniform(1 / std::sqrt(inputs));
  weight_ = proj.parameter("weight", {width, channels, patch_height, patch_width}, fill,
                           WeightDecay::applies);
  bias_ = proj.parameter("bias", {width}, fill);
}

at::Tensor PatchEmbed::operator()(const at::Tensor& images) const {
  const int64_t channels = weight_.size(1), height = weight_.size(2), width = weight_.size(3);
  const int64_t rows = images.size(2) / height, cols = images.size(3) / width;
  const at::Tensor patches = images.reshape({images.size(0), channels, rows, height, cols, width})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({images.size(0), rows * cols, channels * height * width});
  return ops::linear(patches, weight_.flatten(1), bias_);
}

}  // namespace sape2::nn
