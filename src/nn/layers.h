#pragma once

#include "sape2/nn/parameter_scope.h"
#include "sape2/ops/training.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

/// The plain layers of a ViT, with timm's parameter names and first values.
namespace sape2::nn {

inline constexpr double kLayerNormEps = 1e-6;

class Linear {
 public:
  Linear(ParameterScope scope, int64_t in, int64_t out);
  at::Tensor operator()(const at::Tensor& x) const;
  /// The same for whoever adds the bias in a pass of its own.
  ops::Branch branch(const at::Tensor& x) const;
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }

 private:
  at::Tensor weight_;  // (out, in)
  at::Tensor bias_;    // (out)
};

/// Tokens on their way through the layers: what they are, and what is still to be added to them.
struct Stream {
  at::Tensor tokens;  // (B, N, width)
  ops::Branch pending = {};
};

class LayerNorm {
 public:
  LayerNorm(ParameterScope scope, int64_t width);
  at::Tensor operator()(const at::Tensor& x) const;
  /// The tokens with what was pending, and those normalised.
  std::pair<at::Tensor, at::Tensor> operator()(const Stream& stream) const;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

/// A learnable factor per channel on what a branch adds.
class LayerScale {
 public:
  LayerScale(ParameterScope scope, int64_t width, double start);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  at::Tensor gamma_;
};

/// Cuts images into patches and projects each: a convolution whose stride is its size.
class PatchEmbed {
 public:
  PatchEmbed(const ParameterScope& scope, int64_t channels, int64_t patch_height,
             int64_t patch_width, int64_t width);

  /// (B, C, H, W) to (B, patches, width), patches in raster order.
  at::Tensor operator()(const at::Tensor& images) const;

 private:
  at::Tensor weight_;  // (width, C, patch height, patch width)
  at::Tensor bias_;    // (width)
};

}  // namespace sape2::nn
