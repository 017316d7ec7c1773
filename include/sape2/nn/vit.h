#pragma once

#include "sape2/nn/encoding.h"
#include "sape2/nn/model_config.h"
#include "sape2/nn/parameter_scope.h"

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sape2::nn {

/// A vision transformer with any of the position encodings; parameter names follow timm.
///
/// Images may have another size than the one in the configuration, as long as patches divide it:
/// the encoding adapts to the other grid.
class ViT : public torch::nn::Module {
 public:
  /// Parameters depend on the configuration and the seed only. Throws Error if `config` makes no
  /// model.
  explicit ViT(ModelConfig config, Initialisation initialisation = {});
  ~ViT() override;

  /// Logits of normalised images `[B, channels, height, width]`: `[B, classes]`, or with
  /// Head::pixels `[B, classes, height, width]` in float32. In training,
  /// `depth_factors` are what draw_depth() gave, on the images' device; undefined: drawn here,
  /// from LibTorch's own generator.
  at::Tensor forward(const at::Tensor& images, const at::Tensor& depth_factors = {});

  /// Stochastic depth for so many images: the factor `[2·depth, images]` on each branch, 0 where it
  /// is skipped. On the CPU, from a generator of the CPU, whatever device the model is on;
  /// undefined if the model has no stochastic depth.
  at::Tensor draw_depth(int64_t images, const at::Generator& generator) const;

  /// The tokens `[B, N, width]` after the last layer, prefix tokens first. `watcher` is shown every
  /// layer's attention on the way.
  at::Tensor forward_features(const at::Tensor& images, const AttentionWatcher& watcher = {},
                              const at::Tensor& depth_factors = {});

  /// Logits with the gates of SaPE² that `substitute` gives each layer.
  at::Tensor forward_with_gates(const at::Tensor& images, const GateSubstitute& substitute);

  /// Pools such tokens and classifies. With Head::image alone.
  at::Tensor forward_head(const at::Tensor& features);

  /// Classifies each patch among such tokens, the patches forming `grid`, and upsamples the
  /// logits to `size` (bilinear, in float32): `[B, classes, size]`. With Head::pixels alone.
  at::Tensor forward_pixels(const at::Tensor& features, Size2d grid, Size2d size);

  const ModelConfig& config() const { return config_; }

  /// The part of the position encoding that acts at the input.
  const Encoding& encoding() const;

  /// The parameters by name, as a model trained at that grid of patches would have them: those of
  /// the position encoding are resized as they are when images of that size come.
  std::map<std::string, at::Tensor> weights_at(int64_t rows, int64_t cols) const;

  /// The names of the parameters that weight decay applies to: the weights of linear layers and of
  /// the patch embedding, not norms, biases, tokens, or anything of a position encoding.
  const std::set<std::string>& decayed_parameters() const { return decayed_; }

 private:
  struct Layers;

  at::Tensor run_layers(const at::Tensor& images, ForwardPass& pass);
  at::Tensor run_head(const at::Tensor& features, const at::Tensor& images);

  ModelConfig config_;
  std::set<std::string> decayed_;
  std::unique_ptr<Layers> layers_;
};

/// A matrix `[target, source]` that upsamples `source` numbers along an axis by linear
/// interpolation between their middles; beyond the outermost ones, it repeats those.
at::Tensor upsampling_matrix(int64_t source, int64_t target, const at::TensorOptions& options);

/// The number of parameters of a model, without building it.
int64_t parameter_count(const ModelConfig& config);

}  // namespace sape2::nn
