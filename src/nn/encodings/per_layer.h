#pragma once

#include "nn/encodings/makers.h"

namespace sape2::nn {

/// An encoding that acts in the layers only: each layer gets a `Layer(spec, shape, scope)`.
template <typename Layer>
class PerLayer : public Encoding {
 public:
  PerLayer(const EncodingSpec& spec, const EncodingShape& shape) : spec_(spec), shape_(shape) {}

  std::unique_ptr<LayerEncoding> make_layer(ParameterScope& scope) const override {
    return std::make_unique<Layer>(spec_, shape_, scope);
  }

 private:
  EncodingSpec spec_;
  EncodingShape shape_;
};

/// EncodingMaker::make for such an encoding.
template <typename Layer>
std::unique_ptr<Encoding> make_per_layer(const EncodingSpec& spec, const EncodingShape& shape,
                                         ParameterScope&) {
  return std::make_unique<PerLayer<Layer>>(spec, shape);
}

}  // namespace sape2::nn
