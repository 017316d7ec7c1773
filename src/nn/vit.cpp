#include "sape2/nn/vit.h"

#include "sape2/base/error.h"

#include "nn/block.h"
#include "nn/layers.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <optional>

namespace sape2::nn {
namespace {

// timm's start for class token and registers.
constexpr double kTokenDeviation = 1e-6;

ModelConfig validated(ModelConfig config) {
  config.validate();
  return config;
}

std::string shown(const at::Tensor& tensor) {
  std::string text;
  for (int64_t size : tensor.sizes()) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// (1, count, width), or undefined where there are none.
at::Tensor make_tokens(ParameterScope& scope, const char* name, int64_t count, int64_t width) {
  if (count == 0) return {};
  return scope.parameter(name, {1, count, width}, fill_normal(kTokenDeviation));
}

std::vector<Block> make_blocks(const ParameterScope& scope, const ViTConfig& config,
                               const Encoding& encoding) {
  std::vector<Block> blocks;
  for (int64_t layer = 0; layer < config.depth; ++layer) {
    blocks.emplace_back(scope.child(std::to_string(layer)), config, layer, encoding);
  }
  return blocks;
}

ops::Grid grid_of(const at::Tensor& images, const ViTConfig& config) {
  if (images.dim() != 4 || images.size(1) != config.channels) {
    throw Error("images are " + shown(images) + ", expected [images, " +
                std::to_string(config.channels) + " channels, height, width]");
  }
  const int64_t height = images.size(2), width = images.size(3);
  const Size2d patch = config.patch_size;
  if (height < 1 || width < 1 || height % patch.height || width % patch.width) {
    throw Error("images are " + std::to_string(height) + "×" + std::to_string(width) +
                ", which patches of " + std::to_string(patch.height) + "×" +
                std::to_string(patch.width) + " do not divide");
  }
  return {height / patch.height, width / patch.width, config.prefix()};
}

}  // namespace

struct ViT::Layers {
  at::Tensor cls_token;
  at::Tensor reg_token;
  std::unique_ptr<Encoding> encoding;
  PatchEmbed patch_embed;
  std::vector<Block> blocks;
  std::optional<LayerNorm> norm;     // before the head or pooling; none for mean pooling
  std::optional<LayerNorm> fc_norm;  // after pooling; for mean pooling only
  std::optional<Linear> seq_pool;    // for sequence pooling only
  std::optional<Linear> head;

  Layers(const ModelConfig& config, ParameterScope scope);

  at::Tensor with_prefix(const at::Tensor& patches) const;
};

ViT::Layers::Layers(const ModelConfig& config, ParameterScope scope)
    : cls_token(make_tokens(scope, "cls_token", config.vit.pooling == Pooling::class_token,
                            config.vit.width)),
      reg_token(make_tokens(scope, "reg_token", config.vit.registers, config.vit.width)),
      encoding(make_encoding(config.encoding, config.vit.encoding_shape(), scope)),
      patch_embed(scope.child("patch_embed"), config.vit.channels, config.vit.patch_size.height,
                  config.vit.patch_size.width, config.vit.width),
      blocks(make_blocks(scope.child("blocks"), config.vit, *encoding)) {
  const ViTConfig& vit = config.vit;
  const bool pools = config.head() == Head::image;
  if (pools && vit.pooling == Pooling::mean) {
    fc_norm.emplace(scope.child("fc_norm"), vit.width);
  } else {
    norm.emplace(scope.child("norm"), vit.width);
  }
  if (pools && vit.pooling == Pooling::sequence) {
    seq_pool.emplace(scope.child("seq_pool"), vit.width, 1);
  }
  head.emplace(scope.child("head"), vit.width, vit.classes);
}

at::Tensor ViT::Layers::with_prefix(const at::Tensor& patches) const {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& token : {cls_token, reg_token}) {
    if (!token.defined()) continue;
    parts.push_back(token.to(patches.scalar_type()).expand({patches.size(0), -1, -1}));
  }
  if (parts.empty()) return patches;
  parts.push_back(patches);
  return at::cat(parts, 1);
}

ViT::ViT(ModelConfig config, Initialisation initialisation)
    : config_(validated(std::move(config))),
      layers_(std::make_unique<Layers>(config_, ParameterScope(*this, initialisation, decayed_))) {}

ViT::~ViT() = default;

const Encoding& ViT::encoding() const {
  return *layers_->encoding;
}

std::map<std::string, at::Tensor> ViT::weights_at(int64_t rows, int64_t cols) const {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : named_parameters()) weights[item.key()] = item.value();
  const ops::Grid grid{rows, cols, config_.vit.prefix()};
  if (rows == config_.vit.rows() && cols == config_.vit.cols()) return weights;
  for (const auto& [name, tensor] : layers_->encoding->resized(grid)) weights[name] = tensor;
  for (size_t layer = 0; layer < layers_->blocks.size(); ++layer) {
    const std::string place = "blocks." + std::to_string(layer) + ".attn.pos.";
    for (const auto& [name, tensor] : layers_->blocks[layer].encoding().resized(grid)) {
      weights[place + name] = tensor;
    }
  }
  return weights;
}

at::Tensor ViT::forward(const at::Tensor& images, const at::Tensor& depth_factors) {
  return run_head(forward_features(images, {}, depth_factors), images);
}

at::Tensor ViT::draw_depth(int64_t images, const at::Generator& generator) const {
  const ViTConfig& vit = config_.vit;
  if (vit.stochastic_depth == 0 || vit.depth == 1) return {};
  std::vector<float> kept;
  for (int64_t layer = 0; layer < vit.depth; ++layer) {
    kept.insert(kept.end(), 2, static_cast<float>(1 - skip_rate(vit, layer)));
  }
  const at::Tensor share = at::tensor(kept).unsqueeze(1);
  return at::rand({2 * vit.depth, images}, generator).lt(share).to(at::kFloat) / share;
}

at::Tensor ViT::forward_features(const at::Tensor& images, const AttentionWatcher& watcher,
                                 const at::Tensor& depth_factors) {
  ForwardPass pass{
      .grid = grid_of(images, config_.vit), .training = is_training(), .watcher = watcher};
  if (is_training()) {
    pass.depth_factors = depth_factors.defined()
                             ? depth_factors
                             : draw_depth(images.size(0), at::detail::getDefaultCPUGenerator());
    if (pass.depth_factors.defined()) pass.depth_factors = pass.depth_factors.to(images.device());
  }
  return run_layers(images, pass);
}

at::Tensor ViT::forward_with_gates(const at::Tensor& images, const GateSubstitute& substitute) {
  ForwardPass pass{.grid = grid_of(images, config_.vit), .gate_substitute = substitute};
  return run_head(run_layers(images, pass), images);
}

at::Tensor ViT::run_head(const at::Tensor& features, const at::Tensor& images) {
  if (config_.head() == Head::image) return forward_head(features);
  const Size2d size{images.size(2), images.size(3)}, patch = config_.vit.patch_size;
  return forward_pixels(features, {size.height / patch.height, size.width / patch.width}, size);
}

at::Tensor ViT::run_layers(const at::Tensor& images, ForwardPass& pass) {
  const at::Tensor patches = layers_->patch_embed(images);
  at::Tensor tokens = layers_->encoding->embed(layers_->with_prefix(patches), pass);
  tokens = at::dropout(tokens, config_.vit.embedding_dropout, is_training());
  Stream stream{tokens};
  for (const Block& block : layers_->blocks) stream = block(stream, pass);
  if (layers_->norm) return (*layers_->norm)(stream).second;
  return ops::add(stream.tokens, stream.pending);
}

at::Tensor ViT::forward_head(const at::Tensor& features) {
  const ViTConfig& vit = config_.vit;
  require_classifier(config_, "the head of a classifier");
  if (vit.pooling == Pooling::class_token) return (*layers_->head)(features.select(1, 0));
  const at::Tensor patches = features.narrow(1, vit.prefix(), features.size(1) - vit.prefix());
  if (vit.pooling == Pooling::mean) return (*layers_->head)((*layers_->fc_norm)(patches.mean(1)));
  const at::Tensor weights = at::softmax((*layers_->seq_pool)(patches), 1);  // (B, patches, 1)
  return (*layers_->head)(at::matmul(weights.transpose(1, 2), patches).squeeze(1));
}

at::Tensor ViT::forward_pixels(const at::Tensor& features, Size2d grid, Size2d size) {
  const int64_t prefix = config_.vit.prefix(), patches = grid.height * grid.width;
  if (config_.head() != Head::pixels || features.size(1) != prefix + patches) {
    throw Error("tokens are " + shown(features) + ", which a model of the task " + config_.task +
                " does not spread over a grid of " + std::to_string(grid.height) + "×" +
                std::to_string(grid.width));
  }
  const at::Tensor logits = (*layers_->head)(features.narrow(1, prefix, patches))
                                .to(at::kFloat)
                                .transpose(1, 2)
                                .unflatten(2, {grid.height, grid.width});  // (B, K, rows, cols)
  // As two products: exact, and their gradients are products as well, alike on every device.
  const at::Tensor down = upsampling_matrix(grid.height, size.height, logits.options());
  const at::Tensor across = upsampling_matrix(grid.width, size.width, logits.options());
  return at::matmul(down, at::matmul(logits, across.t()));
}

at::Tensor upsampling_matrix(int64_t source, int64_t target, const at::TensorOptions& options) {
  const at::NoGradGuard no_grad;
  const double step = static_cast<double>(source) / static_cast<double>(target);
  const at::Tensor middle = at::arange(target, options).add(0.5).mul(step).sub(0.5);
  const at::Tensor place = middle.clamp(0, static_cast<double>(source - 1)).unsqueeze(1);
  return (1 - (place - at::arange(source, options)).abs()).clamp_min(0);
}

int64_t parameter_count(const ModelConfig& config) {
  const ViT shapes(config, {.kind = Initialisation::Kind::shapes_only});
  int64_t count = 0;
  for (const at::Tensor& parameter : shapes.parameters()) count += parameter.numel();
  return count;
}

}  // namespace sape2::nn
