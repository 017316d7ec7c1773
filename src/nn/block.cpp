#include "nn/block.h"

#include <ATen/ATen.h>

namespace sape2::nn {
namespace {

// Stochastic depth grows linearly from 0 in the first layer to its full rate in the last.
double skip_rate(const ViTConfig& config, int64_t layer) {
  if (config.depth == 1) return 0;
  return config.stochastic_depth * static_cast<double>(layer) /
         static_cast<double>(config.depth - 1);
}

std::unique_ptr<LayerEncoding> make_layer_encoding(const Encoding& encoding, ParameterScope scope) {
  return encoding.make_layer(scope);
}

std::optional<LayerScale> make_layer_scale(const ParameterScope& scope, const std::string& name,
                                           const ViTConfig& config) {
  if (!config.layer_scale) return std::nullopt;
  return LayerScale(scope.child(name), config.width, *config.layer_scale);
}

}  // namespace

Attention::Attention(const ParameterScope& scope, const ViTConfig& config, const Encoding& encoding)
    : heads_(config.heads),
      dropout_(config.projection_dropout),
      qkv_(scope.child("qkv"), config.width, 3 * config.width),
      proj_(scope.child("proj"), config.width, config.width),
      encoding_(make_layer_encoding(encoding, scope.child("pos"))) {}

at::Tensor Attention::operator()(const at::Tensor& tokens, ForwardPass& pass) const {
  const int64_t images = tokens.size(0), count = tokens.size(1), width = tokens.size(2);
  const at::Tensor qkv = qkv_(encoding_->attention_input(tokens, pass))
                             .view({images, count, 3, heads_, width / heads_})
                             .permute({2, 0, 3, 1, 4});  // (3, B, h, N, d)
  if (pass.watcher) pass.watcher(*encoding_, qkv[0], qkv[1]);
  const at::Tensor out = encoding_->attend(qkv[0], qkv[1], qkv[2], pass.grid);
  const at::Tensor merged = out.transpose(1, 2).reshape({images, count, width});
  return at::dropout(proj_(merged), dropout_, pass.training);
}

Mlp::Mlp(const ParameterScope& scope, const ViTConfig& config)
    : dropout_(config.mlp_dropout),
      fc1_(scope.child("fc1"), config.width, config.mlp_width()),
      fc2_(scope.child("fc2"), config.mlp_width(), config.width) {}

at::Tensor Mlp::operator()(const at::Tensor& tokens, const ForwardPass& pass) const {
  const at::Tensor hidden = at::dropout(at::gelu(fc1_(tokens)), dropout_, pass.training);
  return at::dropout(fc2_(hidden), dropout_, pass.training);
}

Block::Block(const ParameterScope& scope, const ViTConfig& config, int64_t layer,
             const Encoding& encoding)
    : skip_(skip_rate(config, layer)),
      norm1_(scope.child("norm1"), config.width),
      attn_(scope.child("attn"), config, encoding),
      ls1_(make_layer_scale(scope, "ls1", config)),
      norm2_(scope.child("norm2"), config.width),
      mlp_(scope.child("mlp"), config),
      ls2_(make_layer_scale(scope, "ls2", config)) {}

at::Tensor Block::operator()(const at::Tensor& tokens, ForwardPass& pass) const {
  const at::Tensor x = tokens + branch(attn_(norm1_(tokens), pass), ls1_, pass);
  return x + branch(mlp_(norm2_(x), pass), ls2_, pass);
}

// LayerScale and stochastic depth: each image keeps the branch with probability 1 − skip.
at::Tensor Block::branch(const at::Tensor& x, const std::optional<LayerScale>& scale,
                         const ForwardPass& pass) const {
  const at::Tensor scaled = scale ? (*scale)(x) : x;
  if (!pass.training || skip_ == 0) return scaled;
  const at::Tensor kept = at::empty({x.size(0), 1, 1}, x.options()).bernoulli_(1 - skip_);
  return scaled * (kept / (1 - skip_));
}

}  // namespace sape2::nn
