#include "nn/encodings/per_layer.h"

#include <cmath>
#include <numbers>

namespace sape2::nn {
namespace {

/// Rotary position whose frequencies along x and y are learnt for each head and pair of channels.
class MixedRopeLayer : public LayerEncoding {
 public:
  MixedRopeLayer(const EncodingSpec&, const EncodingShape& shape, ParameterScope& scope) {
    // Both parameters draw the same directions, one a head.
    const RandomStream direction = scope.stream("direction");
    const int64_t pairs = shape.head_size() / 2;
    fx_ = scope.parameter("fx", {shape.heads, pairs}, along_axis(direction, pairs, 0));
    fy_ = scope.parameter("fy", {shape.heads, pairs},
                          along_axis(direction, pairs, -std::numbers::pi / 2));
  }

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::Grid& grid) const override {
    return ops::rotary_attention(q, k, v, grid, {ops::Rotation::Angles::mixed, fx_, fy_});
  }

  ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k, const ops::Grid& grid,
                             const ops::PatchList& patches) const override {
    return ops::attention_rows(ops::rope2d_mixed(q, fx_, fy_, grid),
                               ops::rope2d_mixed(k, fx_, fy_, grid), grid, patches);
  }

 private:
  // Magnitudes 10^(−4t/d) in a random direction, the second half of the pairs at a right angle to
  // it. The cosine of an angle turned back by a quarter is its sine: y's part.
  static Fill along_axis(RandomStream direction, int64_t pairs, double turn) {
    return [=](std::span<float> data, RandomStream&) mutable {
      for (size_t start = 0; start < data.size(); start += static_cast<size_t>(pairs)) {
        const double angle = 2 * std::numbers::pi * direction.uniform() + turn;
        for (int64_t t = 0; t < pairs; ++t) {
          const bool second_half = t >= pairs / 2;
          const int64_t step = second_half ? t - pairs / 2 : t;
          const double magnitude =
              std::pow(10.0, -2.0 * static_cast<double>(step) / static_cast<double>(pairs));
          data[start + static_cast<size_t>(t)] = static_cast<float>(
              magnitude * std::cos(angle + (second_half ? std::numbers::pi / 2 : 0)));
        }
      }
    };
  }

  at::Tensor fx_;  // (heads, d/2)
  at::Tensor fy_;  // (heads, d/2)
};

}  // namespace

std::vector<EncodingMaker> makers_of_rope2d_mixed() {
  return {{"rope2d-mixed", make_per_layer<MixedRopeLayer>}};
}

}  // namespace sape2::nn
