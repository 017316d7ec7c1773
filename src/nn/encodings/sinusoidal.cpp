#include "sape2/nn/encoding.h"

#include "nn/encodings/makers.h"
#include "ops/sizes.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::nn {
namespace {

// (positions, width): sine on even, cosine on odd channels, both of position /
// 10000^(2·⌊c/2⌋/width).
at::Tensor waves(const at::Tensor& positions, int64_t width) {
  const at::Tensor channel = at::arange(width, positions.options());
  const at::Tensor odd = at::remainder(channel, 2);
  const at::Tensor wavelength =
      at::exp((channel - odd) * (std::log(10000.0) / static_cast<double>(width)));
  const at::Tensor angle = positions.unsqueeze(1) / wavelength;
  return at::where(odd.to(at::kBool), angle.cos(), angle.sin());
}

/// Adds fixed vectors to the patches; prefix tokens get none.
class Sinusoidal : public Encoding {
 public:
  explicit Sinusoidal(bool two_axes) : two_axes_(two_axes) {}

  at::Tensor embed(const at::Tensor& tokens, ForwardPass& pass) const override {
    const ops::Grid& grid = pass.grid;
    const at::Tensor raster = at::arange(grid.patches(), tokens.options().dtype(at::kDouble));
    const int64_t width = ops::size_of(tokens, 2);
    const at::Tensor patches =
        two_axes_ ? over_axes(raster, grid.cols, width) : waves(raster, width);
    const at::Tensor prefix = at::zeros({grid.prefix, width}, patches.options());
    return tokens + at::cat({prefix, patches}).to(tokens.scalar_type());
  }

 private:
  static at::Tensor over_axes(const at::Tensor& raster, int64_t cols, int64_t width) {
    const at::Tensor x = at::remainder(raster, cols);
    const at::Tensor y = (raster - x) / cols;
    return at::cat({waves(x, width / 2), waves(y, width / 2)}, 1);
  }

  bool two_axes_;
};

template <bool two_axes>
std::unique_ptr<Encoding> make(const EncodingSpec&, const EncodingShape&, ParameterScope&) {
  return std::make_unique<Sinusoidal>(two_axes);
}

}  // namespace

std::vector<EncodingMaker> makers_of_sinusoidal() {
  return {{"sinusoidal", make<false>}, {"sinusoidal2d", make<true>}};
}

}  // namespace sape2::nn
