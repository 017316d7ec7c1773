#pragma once

#include "sape2/infer/inspection.h"
#include "sape2/kernels/attention.h"
#include "sape2/nn/encoding_definition.h"

#include "infer/weights.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Position encodings as the runtime sees them. As in nn, the model knows them through this
/// interface alone; unlike there, everything that depends on the grid but not on the image is made
/// once for each grid, so that a forward pass only attends.
namespace sape2::infer {

/// q and k of one image and layer, as the attention gets them.
struct QueriesAndKeys {
  kernels::Shape shape;  ///< of one image
  kernels::ConstView q, k;
  float scale = 1.0F;  ///< 1/√d
};

/// Numbers of the patches that somebody asks about.
using Patches = std::span<const std::int64_t>;

/// What a layer's encoding does on one grid. By itself: attention that knows no positions.
class GridAttention {
 public:
  virtual ~GridAttention() = default;

  virtual void attend(const kernels::AttentionInputs& inputs,
                      const kernels::AttentionOutputs& outputs,
                      const kernels::Executor& executor) const;

  /// What that attention is made of, as some patches see it.
  virtual AttentionRows inspect(const QueriesAndKeys& tokens, Patches patches) const;

  /// Cosines and sines that q and k are turned by before they attend, (tokens, head size), of one
  /// head; null: they are not turned.
  virtual const float* turns(std::int64_t head) const;
};

/// The parameters that an encoding has in one layer.
class LayerEncoding {
 public:
  virtual ~LayerEncoding() = default;
  virtual std::unique_ptr<GridAttention> on(const Grid& grid) const;
};

/// An encoding of a whole model. By itself: no positions at all.
class Encoding {
 public:
  virtual ~Encoding() = default;

  /// The part that acts in one layer, its tensors named `prefix` and more.
  virtual std::unique_ptr<LayerEncoding> make_layer(Weights& weights,
                                                    const std::string& prefix) const;

  /// What is added to the embedded tokens, (tokens, width); empty: nothing.
  virtual std::vector<float> added_to_embedding(const Grid& grid) const;

  /// What is added to the normalised tokens of every layer, each (tokens, width); empty: nothing.
  virtual std::vector<std::vector<float>> added_in_layers(const Grid& grid) const;
};

/// The encoding that `spec` names, `+ape` included, with the tensors of the model as a whole.
std::unique_ptr<Encoding> make_encoding(const nn::EncodingSpec& spec,
                                        const nn::EncodingShape& shape, std::int64_t depth,
                                        Weights& weights);

/// All that makes an encoding; those that act in layers only do not mind the depth.
struct EncodingParts {
  const nn::EncodingSpec& spec;
  const nn::EncodingShape& shape;
  std::int64_t depth;
  Weights& weights;
};
struct EncodingMaker {
  std::string_view name;
  std::unique_ptr<Encoding> (*make)(const EncodingParts&);
};

/// An encoding that acts in the layers only: each layer gets a `Layer(spec, shape, weights,
/// prefix)`.
template <typename Layer>
class PerLayer : public Encoding {
 public:
  PerLayer(const nn::EncodingSpec& spec, const nn::EncodingShape& shape)
      : spec_(spec), shape_(shape) {}

  std::unique_ptr<LayerEncoding> make_layer(Weights& weights,
                                            const std::string& prefix) const override {
    return std::make_unique<Layer>(spec_, shape_, weights, prefix);
  }

 private:
  nn::EncodingSpec spec_;
  nn::EncodingShape shape_;
};

template <typename Layer>
std::unique_ptr<Encoding> make_per_layer(const EncodingParts& parts) {
  return std::make_unique<PerLayer<Layer>>(parts.spec, parts.shape);
}

}  // namespace sape2::infer
