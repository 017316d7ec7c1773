// The vision transformer around its attention.
#include "sape2/nn/encoding.h"

#include "nn/layers.h"
#include "onnx/model_graph.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace sape2::onnx {
namespace {

// x·Wᵀ + b, with the weights in the order in which a product of matrices wants them.
Value linear(const Export& to, const Value& x, const std::string& name) {
  const Graph::Scope scope(to.graph, name);
  const Value weight = to.constant("weight", to.parameter(name + ".weight").t());
  return to.graph.add(to.graph.product(x, weight),
                      to.constant("bias", to.parameter(name + ".bias")));
}

Value layer_norm(const Export& to, const Value& x, const std::string& weight,
                 const std::string& bias) {
  const Value w = to.constant("norm_weight", to.parameter(weight));
  const Value b = to.constant("norm_bias", to.parameter(bias));
  return to.graph.node("LayerNormalization", {x, w, b},
                       {{"axis", -1}, {"epsilon", static_cast<float>(nn::kLayerNormEps)}});
}

Value layer_norm(const Export& to, const Value& x, const std::string& name) {
  return layer_norm(to, x, name + ".weight", name + ".bias");
}

// x · (1 + erf(x/√2)) / 2
Value gelu(Graph& graph, const Value& x) {
  const auto root = static_cast<float>(1 / std::numbers::sqrt2);
  const Value erf = graph.node("Erf", {graph.multiply(x, graph.number(root))});
  const Value half = graph.multiply(x, graph.number(0.5F));
  return graph.multiply(half, graph.add(erf, graph.number(1)));
}

// A convolution whose stride is its size, its results in raster order: `[batch, patches, width]`.
Value patch_embedding(const Export& to, const Value& images) {
  const nn::ViTConfig& vit = to.vit();
  const Graph::Scope scope(to.graph, "patch_embed");
  const Shape patch{vit.patch_size.height, vit.patch_size.width};
  const Value weight = to.constant("weight", to.parameter("patch_embed.proj.weight"));
  const Value bias = to.constant("bias", to.parameter("patch_embed.proj.bias"));
  const Value patches =
      to.graph.node("Conv", {images, weight, bias}, {{"kernel_shape", patch}, {"strides", patch}});
  return to.graph.transposed(to.graph.reshaped(patches, {0, 0, to.grid.patches()}), {0, 2, 1});
}

// Class token and registers before the patches, the same for each image.
Value with_tokens(const Export& to, const Value& images, const Value& patches) {
  std::vector<at::Tensor> tokens;
  if (to.vit().pooling == nn::Pooling::class_token) tokens.push_back(to.parameter("cls_token"));
  if (to.vit().registers > 0) tokens.push_back(to.parameter("reg_token"));
  if (tokens.empty()) return patches;
  Graph& graph = to.graph;
  const Value count = graph.node("Shape", {images}, {{"start", 0}, {"end", 1}});
  const Value shape = graph.node(
      "Concat", {count, graph.integers({to.grid.prefix, to.vit().width})}, {{"axis", 0}});
  const Value expanded = graph.node("Expand", {to.constant("tokens", at::cat(tokens, 1)), shape});
  return graph.node("Concat", {expanded, patches}, {{"axis", 1}});
}

// What the encoding adds to the tokens, and what it hands from layer to layer: both do not depend
// on the image, so that the encoding's own code says them.
struct AtInput {
  at::Tensor added, carried;  // (1, tokens, width), or undefined
};

AtInput at_input(const Export& to) {
  const nn::Encoding& encoding = to.model.encoding();
  nn::ForwardPass pass{.grid = to.grid};
  const at::Tensor nothing = at::zeros({1, to.grid.tokens(), to.vit().width});
  const at::Tensor added = encoding.embed(nothing, pass);
  const bool any = added.ne(0).any().item<bool>();
  return {any ? added : at::Tensor(), pass.carried};
}

Value scaled(const Export& to, const Value& branch, const std::string& name) {
  if (!to.vit().layer_scale) return branch;
  return to.graph.multiply(branch, to.constant(name, to.parameter(name + ".gamma")));
}

Value attention_branch(const Export& to, const Value& tokens, const std::string& block) {
  Graph& graph = to.graph;
  const nn::ViTConfig& vit = to.vit();
  const Value qkv = linear(to, tokens, block + "attn.qkv");
  const Graph::Scope scope(graph, block + "attn");
  const auto heads = [&](std::int64_t number) {
    const Value part = graph.part(qkv, 2, number * vit.width, (number + 1) * vit.width);
    return graph.transposed(graph.reshaped(part, {0, 0, vit.heads, vit.head_size()}), {0, 2, 1, 3});
  };
  const Heads all{heads(0), heads(1), heads(2)};
  const Value out = graph.transposed(attention(to, all, block + "attn.pos."), {0, 2, 1, 3});
  return graph.reshaped(out, {0, 0, vit.width});
}

Value head(const Export& to, const Value& tokens) {
  Graph& graph = to.graph;
  const nn::ViTConfig& vit = to.vit();
  const Graph::Scope scope(graph, "pool");
  if (vit.pooling == nn::Pooling::class_token) {
    return linear(to, layer_norm(to, graph.entry(tokens, 1, 0), "norm"), "head");
  }
  const auto patches = [&](const Value& all) {
    return to.grid.prefix == 0 ? all : graph.part(all, 1, to.grid.prefix, to.grid.tokens());
  };
  if (vit.pooling == nn::Pooling::mean) {
    const Value sum =
        graph.node("ReduceSum", {patches(tokens), graph.integers({1})}, {{"keepdims", 0}});
    const auto share = static_cast<float>(1.0 / static_cast<double>(to.grid.patches()));
    return linear(to, layer_norm(to, graph.multiply(sum, graph.number(share)), "fc_norm"), "head");
  }
  const Value normed = patches(layer_norm(to, tokens, "norm"));
  const Value weights = graph.softmax(linear(to, normed, "seq_pool"), 1);  // (B, patches, 1)
  const Value pooled = graph.product(graph.transposed(weights, {0, 2, 1}), normed);
  return linear(to, graph.node("Squeeze", {pooled, graph.integers({1})}), "head");
}

}  // namespace

at::Tensor Export::parameter(const std::string& name) const {
  const at::Tensor* found = nullptr;
  const auto all = model.named_parameters();
  found = all.find(name);
  return found->detach().to(at::kCPU, at::kFloat);
}

Value Export::constant(const std::string& name, const at::Tensor& tensor) const {
  const at::Tensor values = tensor.detach().to(at::kFloat).contiguous();
  return graph.constant(name, values.sizes().vec(),
                        {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
}

Value logits(const Export& to, const Value& images) {
  Graph& graph = to.graph;
  Value tokens = with_tokens(to, images, patch_embedding(to, images));
  const AtInput positions = at_input(to);
  if (positions.added.defined()) {
    tokens = graph.add(tokens, to.constant("positions", positions.added));
  }
  Value carried;
  if (positions.carried.defined()) carried = to.constant("carried", positions.carried);
  for (std::int64_t layer = 0; layer < to.vit().depth; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    Value normed = layer_norm(to, tokens, block + "norm1");
    if (positions.carried.defined()) {
      carried =
          layer_norm(to, carried, block + "attn.pos.norm_weight", block + "attn.pos.norm_bias");
      normed = graph.add(normed, carried);
    }
    const Value attended = linear(to, attention_branch(to, normed, block), block + "attn.proj");
    tokens = graph.add(tokens, scaled(to, attended, block + "ls1"));
    const Value hidden = linear(to, layer_norm(to, tokens, block + "norm2"), block + "mlp.fc1");
    const Value out = linear(to, gelu(graph, hidden), block + "mlp.fc2");
    tokens = graph.add(tokens, scaled(to, out, block + "ls2"));
  }
  return head(to, tokens);
}

}  // namespace sape2::onnx
