#include "infer/encoding.h"
#include "infer/encodings/tables.h"

namespace sape2::infer {
namespace {

/// A learnable vector per token that goes its own way through the layers, normalised in each. It
/// does not depend on the image, so a grid's vectors are made once.
class Lape : public Encoding {
 public:
  explicit Lape(const EncodingParts& parts)
      : shape_(parts.shape),
        table_(parts.weights.floats("lape_embed", {1, shape_.tokens(), shape_.width})) {
    for (std::int64_t layer = 0; layer < parts.depth; ++layer) {
      const std::string prefix = "blocks." + std::to_string(layer) + ".attn.pos.norm_";
      norms_.push_back({parts.weights.floats(prefix + "weight", {shape_.width}),
                        parts.weights.floats(prefix + "bias", {shape_.width})});
    }
  }

  std::vector<std::vector<float>> added_in_layers(const Grid& grid) const override {
    std::vector<std::vector<float>> layers;
    std::vector<float> carried = resampled_tokens(table_, shape_, grid);
    for (const Norm& norm : norms_) {
      kernels::layer_norm({norm.weight.data(), norm.bias.data()}, grid.tokens(), shape_.width,
                          {carried.data(), shape_.width}, {carried.data(), shape_.width});
      layers.push_back(carried);
    }
    return layers;
  }

 private:
  struct Norm {
    std::vector<float> weight, bias;
  };

  nn::EncodingShape shape_;
  std::vector<float> table_;  // (tokens, width)
  std::vector<Norm> norms_;
};

}  // namespace

std::vector<EncodingMaker> makers_of_lape() {
  return {{"lape", [](const EncodingParts& parts) -> std::unique_ptr<Encoding> {
             return std::make_unique<Lape>(parts);
           }}};
}

}  // namespace sape2::infer
