#include "sape2/nn/vit_config.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <cmath>

namespace sape2::nn {
namespace {

// Far beyond any model, and small enough that the number of parameters cannot overflow.
constexpr int64_t kLargestSide = 1 << 16;
constexpr int64_t kMostChannels = 1 << 10;
constexpr int64_t kMostClasses = 1 << 20;
constexpr int64_t kMostTokens = 1 << 20;
constexpr int64_t kMostLayers = 1 << 10;
constexpr int64_t kWidest = 1 << 16;
constexpr double kWidestMlpRatio = 64;

const std::vector<std::string> kPoolingNames{"mean", "sequence", "class-token"};

void check_count(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(std::string(name) + " is " + std::to_string(value) + ", expected a number from " +
              std::to_string(least) + " to " + std::to_string(most));
}

void check_rate(const char* name, double value) {
  if (value >= 0 && value < 1) return;
  throw Error(std::string(name) + " is " + std::to_string(value) +
              ", expected a probability from 0 to below 1");
}

void check_patches(const char* side, int64_t image, int64_t patch) {
  check_count((std::string("image ") + side).c_str(), image, 1, kLargestSide);
  check_count((std::string("patch ") + side).c_str(), patch, 1, kLargestSide);
  if (image % patch == 0) return;
  throw Error(std::string("image ") + side + " is " + std::to_string(image) +
              ", which patches of " + side + " " + std::to_string(patch) + " do not divide");
}

}  // namespace

std::string to_string(Pooling pooling) {
  return kPoolingNames.at(static_cast<size_t>(pooling));
}

Pooling parse_pooling(std::string_view text) {
  for (size_t i = 0; i < kPoolingNames.size(); ++i) {
    if (kPoolingNames[i] == text) return static_cast<Pooling>(i);
  }
  throw Error("pooling " + in_quotes(text) + " is not known; " + name_advice(text, kPoolingNames));
}

void ViTConfig::validate() const {
  check_patches("height", image_size.height, patch_size.height);
  check_patches("width", image_size.width, patch_size.width);
  check_count("channels", channels, 1, kMostChannels);
  check_count("classes", classes, 1, kMostClasses);
  check_count("depth", depth, 1, kMostLayers);
  check_count("width", width, 1, kWidest);
  check_count("heads", heads, 1, kWidest);
  check_count("registers", registers, 0, kMostTokens);
  check_count("tokens", prefix() + rows() * cols(), 1, kMostTokens);
  if (width % heads) {
    throw Error("width is " + std::to_string(width) + ", which " + std::to_string(heads) +
                " heads do not divide");
  }
  // Not a number fails the first comparison, before it is made an integer.
  if (!(mlp_ratio > 0 && mlp_ratio <= kWidestMlpRatio) || mlp_width() < 1) {
    throw Error("mlp_ratio is " + std::to_string(mlp_ratio) +
                ", expected a number from 1/width to 64");
  }
  check_rate("embedding_dropout", embedding_dropout);
  check_rate("projection_dropout", projection_dropout);
  check_rate("mlp_dropout", mlp_dropout);
  check_rate("stochastic_depth", stochastic_depth);
  if (layer_scale && !std::isfinite(*layer_scale)) {
    throw Error("layer_scale is " + std::to_string(*layer_scale) + ", expected a finite number");
  }
}

}  // namespace sape2::nn
