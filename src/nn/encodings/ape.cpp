#include "sape2/nn/encoding.h"

#include "nn/encodings/makers.h"
#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

namespace sape2::nn {
namespace {

class Ape : public Encoding {
 public:
  Ape(const EncodingShape& shape, ParameterScope& scope)
      : shape_(shape),
        table_(scope.parameter("pos_embed", {1, shape.tokens(), shape.width},
                               fill_truncated_normal(kTableDeviation))) {}

  at::Tensor embed(const at::Tensor& tokens, ForwardPass& pass) const override {
    return tokens + resampled_tokens(table_, shape_, pass.grid).to(tokens.scalar_type());
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    return {{"pos_embed", resampled_tokens(table_, shape_, grid)}};
  }

 private:
  EncodingShape shape_;
  at::Tensor table_;  // (1, tokens, width)
};

std::unique_ptr<Encoding> make_ape(const EncodingSpec&, const EncodingShape& shape,
                                   ParameterScope& scope) {
  return std::make_unique<Ape>(shape, scope);
}

}  // namespace

std::vector<EncodingMaker> makers_of_ape() {
  return {{"ape", make_ape}};
}

}  // namespace sape2::nn
