#pragma once

#include "sape2/infer/inspection.h"
#include "sape2/infer/model.h"
#include "sape2/kernels/linear.h"

#include "infer/encoding.h"
#include "infer/weights.h"

#include <memory>
#include <optional>
#include <vector>

namespace sape2::infer {

/// A linear layer with its bias.
struct Linear {
  kernels::PackedWeights weights;
  std::vector<float> bias;
};

struct LayerNorm {
  std::vector<float> weight, bias;

  kernels::LayerNormParameters parameters() const { return {weight.data(), bias.data()}; }
};

/// One layer of a ViT: attention and MLP, each normalised before and added to its input.
struct Block {
  LayerNorm norm1, norm2;
  Linear qkv, proj, fc1, fc2;
  std::vector<float> scale1, scale2;  ///< LayerScale's factors; empty: none
  std::unique_ptr<LayerEncoding> encoding;
};

/// What a grid needs beside the weights: positions that do not depend on the image.
struct GridPlan {
  Grid grid;
  std::vector<float> added;                         ///< to the embedding, (tokens, width), or empty
  std::vector<std::vector<float>> added_in_layers;  ///< to each layer's normalised tokens, or empty
  std::vector<std::unique_ptr<GridAttention>> layers;
};

/// A model file's weights and encoding. Constant, so that sessions share it.
class Network {
 public:
  /// Throws Error with one sentence where the file's tensors are not those of its configuration.
  Network(const io::SafetensorsFile& file, const ModelOptions& options);

  GridPlan plan(const Grid& grid) const;

  /// Logits of one image: one for each class; of a model for segmentation, for each patch and
  /// class.
  std::int64_t logits_on(const Grid& grid) const;

  const nn::ModelConfig& config() const { return config_; }
  Arithmetic arithmetic() const { return arithmetic_; }
  std::size_t bytes() const;

  PackedMemory packed;  ///< where the weights of linear layers lie
  // (prefix tokens, width): the class token, if any, then the registers.
  std::vector<float> prefix_tokens;
  Linear patch_embed;
  std::vector<Block> blocks;
  std::optional<LayerNorm> norm;     ///< before the head or pooling; none for mean pooling
  std::optional<LayerNorm> fc_norm;  ///< after pooling; for mean pooling only
  std::vector<float> pool_weight;    ///< (width), for sequence pooling only
  Linear head;

 private:
  nn::ModelConfig config_;
  Arithmetic arithmetic_ = Arithmetic::float32;
  std::unique_ptr<Encoding> encoding_;
};

}  // namespace sape2::infer
