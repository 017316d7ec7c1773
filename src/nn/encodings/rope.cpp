#include "nn/encodings/per_layer.h"

namespace sape2::nn {
namespace {

class RopeLayer : public LayerEncoding {
 public:
  RopeLayer(const EncodingSpec&, const EncodingShape&, ParameterScope&) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    return ops::rotary_attention(q, k, v, grid, {ops::Rotation::Angles::raster, {}, {}});
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    return ops::attention_rows(ops::rope(q, grid.prefix), ops::rope(k, grid.prefix), grid, patches);
  }
};

class Rope2dLayer : public LayerEncoding {
 public:
  Rope2dLayer(const EncodingSpec&, const EncodingShape&, ParameterScope&) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    return ops::rotary_attention(q, k, v, grid, {ops::Rotation::Angles::axial, {}, {}});
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    return ops::attention_rows(ops::rope2d(q, grid), ops::rope2d(k, grid), grid, patches);
  }
};

}  // namespace

std::vector<EncodingMaker> makers_of_rope() {
  return {{"rope", make_per_layer<RopeLayer>}, {"rope2d", make_per_layer<Rope2dLayer>}};
}

}  // namespace sape2::nn
