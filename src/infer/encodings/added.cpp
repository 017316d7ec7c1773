#include "infer/encoding.h"
#include "infer/encodings/tables.h"

#include <cmath>

// Encodings that add vectors to the embedded tokens, and the one that adds nothing.
namespace sape2::infer {
namespace {

class Ape : public Encoding {
 public:
  explicit Ape(const EncodingParts& parts)
      : shape_(parts.shape),
        table_(parts.weights.floats("pos_embed", {1, shape_.tokens(), shape_.width})) {}

  std::vector<float> added_to_embedding(const Grid& grid) const override {
    return resampled_tokens(table_, shape_, grid);
  }

 private:
  nn::EncodingShape shape_;
  std::vector<float> table_;  // (tokens, width)
};

/// Sine on even, cosine on odd channels, both of position / 10000^(2·⌊c/2⌋/width).
void write_waves(std::int64_t position, std::int64_t width, float* out) {
  for (std::int64_t c = 0; c < width; ++c) {
    const double even = static_cast<double>(c - c % 2);
    const double angle = static_cast<double>(position) /
                         std::exp(even * (std::log(10000.0) / static_cast<double>(width)));
    out[c] = static_cast<float>(c % 2 ? std::cos(angle) : std::sin(angle));
  }
}

/// Fixed vectors for the patches; prefix tokens get none.
class Sinusoidal : public Encoding {
 public:
  Sinusoidal(std::int64_t width, bool two_axes) : width_(width), two_axes_(two_axes) {}

  std::vector<float> added_to_embedding(const Grid& grid) const override {
    std::vector<float> added(static_cast<std::size_t>(grid.tokens() * width_));
    float* out = added.data() + grid.prefix * width_;
    for (std::int64_t patch = 0; patch < grid.patches(); ++patch, out += width_) {
      if (two_axes_) {
        write_waves(patch % grid.cols, width_ / 2, out);
        write_waves(patch / grid.cols, width_ / 2, out + width_ / 2);
      } else {
        write_waves(patch, width_, out);
      }
    }
    return added;
  }

 private:
  std::int64_t width_;
  bool two_axes_;
};

}  // namespace

std::vector<EncodingMaker> makers_of_added() {
  const auto none = [](const EncodingParts&) { return std::make_unique<Encoding>(); };
  const auto ape = [](const EncodingParts& parts) -> std::unique_ptr<Encoding> {
    return std::make_unique<Ape>(parts);
  };
  const auto raster = [](const EncodingParts& parts) -> std::unique_ptr<Encoding> {
    return std::make_unique<Sinusoidal>(parts.shape.width, false);
  };
  const auto axes = [](const EncodingParts& parts) -> std::unique_ptr<Encoding> {
    return std::make_unique<Sinusoidal>(parts.shape.width, true);
  };
  return {{"none", none}, {"ape", ape}, {"sinusoidal", raster}, {"sinusoidal2d", axes}};
}

}  // namespace sape2::infer
