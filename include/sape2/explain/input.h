#pragma once

#include "sape2/data/image.h"
#include "sape2/nn/vit_config.h"

#include <cstdint>
#include <string>

namespace sape2::explain {

/// An RGB image with the name it was asked for by.
struct Picture {
  std::string name;
  data::Image image;
  std::string label;      ///< the true class if it is known
  data::Image mask = {};  ///< the true classes of its pixels if they are known
};

/// The size at which a model looks at an image; 0: as large as the model was trained at.
struct InputSize {
  std::int64_t shorter_side = 0;

  bool operator==(const InputSize&) const = default;
};

/// More patches than this are refused.
inline constexpr std::int64_t kMostPatches = 128 * 128;

/// The image scaled for a model, its proportions kept up to whole patches: it covers the size
/// trained at, or its shorter side is the one asked for. Throws Error if that makes more than
/// `most_patches` patches.
data::Image fit_image(const data::Image& image, const nn::ViTConfig& vit, const InputSize& size,
                      std::int64_t most_patches = kMostPatches);

}  // namespace sape2::explain
