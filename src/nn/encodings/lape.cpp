#include "sape2/nn/encoding.h"

#include "nn/encodings/makers.h"
#include "nn/encodings/tables.h"
#include "nn/layers.h"

#include <ATen/ATen.h>

namespace sape2::nn {
namespace {

class LapeLayer : public LayerEncoding {
 public:
  LapeLayer(int64_t width, ParameterScope& scope)
      : width_(width),
        weight_(scope.parameter("norm_weight", {width}, fill_constant(1))),
        bias_(scope.parameter("norm_bias", {width}, fill_constant(0))) {}

  at::Tensor attention_input(const at::Tensor& tokens, ForwardPass& pass) const override {
    pass.carried = at::layer_norm(pass.carried, {width_}, weight_, bias_, kLayerNormEps);
    return tokens + pass.carried.to(tokens.scalar_type());
  }

 private:
  int64_t width_;
  at::Tensor weight_;
  at::Tensor bias_;
};

/// A learnable vector per token that goes its own way through the layers, normalised in each.
class Lape : public Encoding {
 public:
  Lape(const EncodingShape& shape, ParameterScope& scope)
      : shape_(shape),
        table_(scope.parameter("lape_embed", {1, shape.tokens(), shape.width},
                               fill_truncated_normal(kTableDeviation))) {}

  at::Tensor embed(const at::Tensor& tokens, ForwardPass& pass) const override {
    pass.carried = resampled_tokens(table_, shape_, pass.grid);
    return tokens;
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    return {{"lape_embed", resampled_tokens(table_, shape_, grid)}};
  }

  std::unique_ptr<LayerEncoding> make_layer(ParameterScope& scope) const override {
    return std::make_unique<LapeLayer>(shape_.width, scope);
  }

 private:
  EncodingShape shape_;
  at::Tensor table_;  // (1, tokens, width)
};

std::unique_ptr<Encoding> make_lape(const EncodingSpec&, const EncodingShape& shape,
                                    ParameterScope& scope) {
  return std::make_unique<Lape>(shape, scope);
}

}  // namespace

std::vector<EncodingMaker> makers_of_lape() {
  return {{"lape", make_lape}};
}

}  // namespace sape2::nn
