#include "infer/encoding.h"

#include <cmath>

namespace sape2::infer {
namespace {

/// One angle for each patch and pair of channels, as cosines and sines; prefix tokens keep still.
class Turning : public GridAttention {
 public:
  Turning(const Grid& grid, std::int64_t heads, std::int64_t head_size)
      : head_numbers_(heads == 1 ? 0 : grid.tokens() * head_size),
        prefix_(grid.prefix),
        head_size_(head_size),
        turns_(static_cast<std::size_t>(heads * grid.tokens() * head_size)) {
    for (std::size_t i = 0; i < turns_.size(); i += 2) turns_[i] = 1.0F;
  }

  void set(std::int64_t head, std::int64_t patch, std::int64_t pair, float angle) {
    float* turn = turns_.data() + head * head_numbers_ + (prefix_ + patch) * head_size_ + 2 * pair;
    turn[0] = std::cos(angle);
    turn[1] = std::sin(angle);
  }

  const float* turns(std::int64_t head) const override {
    return turns_.data() + head * head_numbers_;
  }

 private:
  std::int64_t head_numbers_;  // from one head to the next; 0: heads share them
  std::int64_t prefix_, head_size_;
  std::vector<float> turns_;  // (heads or 1, tokens, head size)
};

/// `count` frequencies base^(−t/count).
std::vector<float> frequencies(double base, std::int64_t count) {
  std::vector<float> theta;
  const auto step = static_cast<float>(-std::log(base) / static_cast<double>(count));
  for (std::int64_t t = 0; t < count; ++t) theta.push_back(std::exp(static_cast<float>(t) * step));
  return theta;
}

class RopeLayer : public LayerEncoding {
 public:
  RopeLayer(const nn::EncodingSpec&, const nn::EncodingShape& shape, Weights&, const std::string&)
      : head_size_(shape.head_size()) {}

  std::unique_ptr<GridAttention> on(const Grid& grid) const override {
    auto turning = std::make_unique<Turning>(grid, 1, head_size_);
    const std::vector<float> theta = frequencies(10000, head_size_ / 2);
    for (std::int64_t patch = 0; patch < grid.patches(); ++patch) {
      for (std::size_t t = 0; t < theta.size(); ++t) {
        turning->set(0, patch, static_cast<std::int64_t>(t), static_cast<float>(patch) * theta[t]);
      }
    }
    return turning;
  }

 private:
  std::int64_t head_size_;
};

class Rope2dLayer : public LayerEncoding {
 public:
  Rope2dLayer(const nn::EncodingSpec&, const nn::EncodingShape& shape, Weights&, const std::string&)
      : head_size_(shape.head_size()) {}

  std::unique_ptr<GridAttention> on(const Grid& grid) const override {
    auto turning = std::make_unique<Turning>(grid, 1, head_size_);
    const std::vector<float> theta = frequencies(100, head_size_ / 4);
    const auto half = static_cast<std::int64_t>(theta.size());
    for (std::int64_t patch = 0; patch < grid.patches(); ++patch) {
      const auto x = static_cast<float>(patch % grid.cols);
      const auto y = static_cast<float>(patch / grid.cols);
      for (std::int64_t t = 0; t < half; ++t) {
        turning->set(0, patch, t, x * theta[static_cast<std::size_t>(t)]);
        turning->set(0, patch, half + t, y * theta[static_cast<std::size_t>(t)]);
      }
    }
    return turning;
  }

 private:
  std::int64_t head_size_;
};

class MixedRopeLayer : public LayerEncoding {
 public:
  MixedRopeLayer(const nn::EncodingSpec&, const nn::EncodingShape& shape, Weights& weights,
                 const std::string& prefix)
      : heads_(shape.heads),
        pairs_(shape.head_size() / 2),
        fx_(weights.floats(prefix + "fx", {heads_, pairs_})),
        fy_(weights.floats(prefix + "fy", {heads_, pairs_})) {}

  std::unique_ptr<GridAttention> on(const Grid& grid) const override {
    auto turning = std::make_unique<Turning>(grid, heads_, 2 * pairs_);
    for (std::int64_t head = 0; head < heads_; ++head) {
      for (std::int64_t patch = 0; patch < grid.patches(); ++patch) {
        const auto x = static_cast<float>(patch % grid.cols);
        const auto y = static_cast<float>(patch / grid.cols);
        for (std::int64_t t = 0; t < pairs_; ++t) {
          const auto at = static_cast<std::size_t>(head * pairs_ + t);
          turning->set(head, patch, t, x * fx_[at] + y * fy_[at]);
        }
      }
    }
    return turning;
  }

 private:
  std::int64_t heads_, pairs_;
  std::vector<float> fx_, fy_;  // (heads, pairs)
};

}  // namespace

std::vector<EncodingMaker> makers_of_rope() {
  return {{"rope", make_per_layer<RopeLayer>},
          {"rope2d", make_per_layer<Rope2dLayer>},
          {"rope2d-mixed", make_per_layer<MixedRopeLayer>}};
}

}  // namespace sape2::infer
