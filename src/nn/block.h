#pragma once

#include "sape2/nn/encoding.h"
#include "sape2/nn/vit_config.h"

#include "nn/layers.h"

#include <memory>
#include <optional>

namespace sape2::nn {

/// Multi-head self-attention, its positions given by a LayerEncoding.
class Attention {
 public:
  Attention(const ParameterScope& scope, const ViTConfig& config, const Encoding& encoding);
  ops::Branch operator()(const at::Tensor& tokens, ForwardPass& pass) const;
  const LayerEncoding& encoding() const { return *encoding_; }

 private:
  int64_t heads_;
  double dropout_;
  Linear qkv_, proj_;
  std::unique_ptr<LayerEncoding> encoding_;
};

class Mlp {
 public:
  Mlp(const ParameterScope& scope, const ViTConfig& config);
  ops::Branch operator()(const at::Tensor& tokens, const ForwardPass& pass) const;

 private:
  double dropout_;
  Linear fc1_, fc2_;
};

/// Stochastic depth grows linearly from 0 in the first layer to its full rate in the last.
double skip_rate(const ViTConfig& config, int64_t layer);

/// One layer of a ViT: attention and MLP, each normalised before and added to its input.
class Block {
 public:
  Block(const ParameterScope& scope, const ViTConfig& config, int64_t layer,
        const Encoding& encoding);
  Stream operator()(const Stream& stream, ForwardPass& pass) const;
  const LayerEncoding& encoding() const { return attn_.encoding(); }

 private:
  ops::Branch scaled(ops::Branch branch, const std::optional<LayerScale>& scale,
                     const ForwardPass& pass, int64_t number) const;

  int64_t layer_;
  LayerNorm norm1_;
  Attention attn_;
  std::optional<LayerScale> ls1_;
  LayerNorm norm2_;
  Mlp mlp_;
  std::optional<LayerScale> ls2_;
};

}  // namespace sape2::nn
