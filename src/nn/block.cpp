#include "nn/block.h"

#include <ATen/ATen.h>

namespace sape2::nn {
namespace {

// Dropout comes after the bias, so a branch that has one adds its bias itself.
ops::Branch dropped_out(const ops::Branch& branch, double rate, const ForwardPass& pass) {
  if (rate == 0 || !pass.training) return branch;
  return {
      at::dropout(branch.bias.defined() ? branch.value + branch.bias : branch.value, rate, true),
      {},
      {}};
}

std::unique_ptr<LayerEncoding> make_layer_encoding(const Encoding& encoding, ParameterScope scope) {
  return encoding.make_layer(scope);
}

std::optional<LayerScale> make_layer_scale(const ParameterScope& scope, const std::string& name,
                                           const ViTConfig& config) {
  if (!config.layer_scale) return std::nullopt;
  return LayerScale(scope.child(name), config.width, *config.layer_scale);
}

/// Attention of the thirds of `qkv` [B, N, 3·h·d], seen and changed by whom the pass names.
at::Tensor attended(const LayerEncoding& encoding, const at::Tensor& qkv, int64_t heads,
                    const ForwardPass& pass) {
  if (pass.watcher || pass.gate_substitute) {
    const auto [q, k, v] = ops::split_heads(qkv, heads);  // (B, h, N, d)
    if (pass.watcher) pass.watcher(encoding, q, k);
    const auto own = pass.gate_substitute ? encoding.gates(q, k, pass.grid) : std::nullopt;
    if (own) {
      return encoding.attend_with_gates(q, k, v, pass.grid, pass.gate_substitute(*own))
          .transpose(1, 2)
          .flatten(2);
    }
  }
  return encoding.attend_packed(qkv, heads, pass.grid);
}

}  // namespace

double skip_rate(const ViTConfig& config, int64_t layer) {
  if (config.depth == 1) return 0;
  return config.stochastic_depth * static_cast<double>(layer) /
         static_cast<double>(config.depth - 1);
}

Attention::Attention(const ParameterScope& scope, const ViTConfig& config, const Encoding& encoding)
    : heads_(config.heads),
      dropout_(config.projection_dropout),
      qkv_(scope.child("qkv"), config.width, 3 * config.width),
      proj_(scope.child("proj"), config.width, config.width),
      encoding_(make_layer_encoding(encoding, scope.child("pos"))) {}

ops::Branch Attention::operator()(const at::Tensor& tokens, ForwardPass& pass) const {
  const at::Tensor qkv = qkv_(encoding_->attention_input(tokens, pass));
  return dropped_out(proj_.branch(attended(*encoding_, qkv, heads_, pass)), dropout_, pass);
}

Mlp::Mlp(const ParameterScope& scope, const ViTConfig& config)
    : dropout_(config.mlp_dropout),
      fc1_(scope.child("fc1"), config.width, config.mlp_width()),
      fc2_(scope.child("fc2"), config.mlp_width(), config.width) {}

ops::Branch Mlp::operator()(const at::Tensor& tokens, const ForwardPass& pass) const {
  if (dropout_ == 0 || !pass.training)
    return ops::mlp(tokens, {fc1_.weight(), fc1_.bias(), fc2_.weight(), fc2_.bias()});
  const at::Tensor hidden = at::dropout(ops::gelu(fc1_.branch(tokens)), dropout_, pass.training);
  return dropped_out(fc2_.branch(hidden), dropout_, pass);
}

Block::Block(const ParameterScope& scope, const ViTConfig& config, int64_t layer,
             const Encoding& encoding)
    : layer_(layer),
      norm1_(scope.child("norm1"), config.width),
      attn_(scope.child("attn"), config, encoding),
      ls1_(make_layer_scale(scope, "ls1", config)),
      norm2_(scope.child("norm2"), config.width),
      mlp_(scope.child("mlp"), config),
      ls2_(make_layer_scale(scope, "ls2", config)) {}

Stream Block::operator()(const Stream& stream, ForwardPass& pass) const {
  const auto [tokens, normed] = norm1_(stream);
  const Stream attended{tokens, scaled(attn_(normed, pass), ls1_, pass, 0)};
  const auto [more, normed_again] = norm2_(attended);
  return {more, scaled(mlp_(normed_again, pass), ls2_, pass, 1)};
}

// LayerScale, and the factors of stochastic depth; `number`: 0 the attention, 1 the MLP.
ops::Branch Block::scaled(ops::Branch branch, const std::optional<LayerScale>& scale,
                          const ForwardPass& pass, int64_t number) const {
  if (scale) {
    const at::Tensor value = branch.bias.defined() ? branch.value + branch.bias : branch.value;
    branch = {(*scale)(value), {}, {}};
  }
  if (pass.depth_factors.defined()) {
    branch.factor = pass.depth_factors.select(0, 2 * layer_ + number);
  }
  return branch;
}

}  // namespace sape2::nn
