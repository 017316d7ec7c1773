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
  at::Tensor operator()(const at::Tensor& tokens, ForwardPass& pass) const;

 private:
  int64_t heads_;
  double dropout_;
  Linear qkv_, proj_;
  std::unique_ptr<LayerEncoding> encoding_;
};

class Mlp {
 public:
  Mlp(const ParameterScope& scope, const ViTConfig& config);
  at::Tensor operator()(const at::Tensor& tokens, const ForwardPass& pass) const;

 private:
  double dropout_;
  Linear fc1_, fc2_;
};

/// One layer of a ViT: attention and MLP, each normalised before and added to its input.
class Block {
 public:
  Block(const ParameterScope& scope, const ViTConfig& config, int64_t layer,
        const Encoding& encoding);
  at::Tensor operator()(const at::Tensor& tokens, ForwardPass& pass) const;

 private:
  at::Tensor branch(const at::Tensor& x, const std::optional<LayerScale>& scale,
                    const ForwardPass& pass) const;

  double skip_;
  LayerNorm norm1_;
  Attention attn_;
  std::optional<LayerScale> ls1_;
  LayerNorm norm2_;
  Mlp mlp_;
  std::optional<LayerScale> ls2_;
};

}  // namespace sape2::nn
