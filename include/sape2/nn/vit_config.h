#pragma once

#include "sape2/nn/encoding_definition.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sape2::nn {

/// How the tokens become one vector for the classifier.
enum class Pooling {
  mean,         ///< mean of the patches
  sequence,     ///< mean of the patches weighted by a learnt attention, as in CCT
  class_token,  ///< a class token in front of the patches
};

/// `mean`, `sequence`, `class-token`.
std::string to_string(Pooling pooling);
Pooling parse_pooling(std::string_view text);

struct Size2d {
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const Size2d&) const = default;
};

/// The architecture of a vision transformer, its position encoding aside. The defaults are the
/// paper's model on 32×32 images.
struct ViTConfig {
  Size2d image_size{32, 32};
  Size2d patch_size{4, 4};
  int64_t channels = 3;
  int64_t classes = 10;

  int64_t depth = 12;
  int64_t width = 384;
  int64_t heads = 6;
  double mlp_ratio = 4;

  Pooling pooling = Pooling::mean;
  /// Learnable tokens without meaning that stand before the patches.
  int64_t registers = 0;

  /// Probabilities of dropping a channel after the embedding, after the attention's projection, and
  /// in the MLP.
  double embedding_dropout = 0;
  double projection_dropout = 0;
  double mlp_dropout = 0;
  /// Probability of skipping a branch in the last layer; grows linearly from 0 in the first.
  double stochastic_depth = 0;
  /// Where the factors of LayerScale start; nothing: no LayerScale.
  std::optional<double> layer_scale = std::nullopt;

  int64_t head_size() const { return width / heads; }
  int64_t mlp_width() const { return static_cast<int64_t>(static_cast<double>(width) * mlp_ratio); }
  int64_t rows() const { return image_size.height / patch_size.height; }
  int64_t cols() const { return image_size.width / patch_size.width; }
  /// The class token, if any, and the registers.
  int64_t prefix() const { return (pooling == Pooling::class_token ? 1 : 0) + registers; }
  EncodingShape encoding_shape() const { return {width, heads, rows(), cols(), prefix()}; }

  /// Throws Error with one sentence if the values make no model.
  void validate() const;

  bool operator==(const ViTConfig&) const = default;
};

}  // namespace sape2::nn
