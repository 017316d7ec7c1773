#pragma once

#include "sape2/nn/vit_config.h"

#include <string>
#include <string_view>
#include <vector>

namespace sape2::nn {

/// A named architecture for 32×32 images, patches of 4×4 and 10 classes.
struct Preset {
  std::string name;
  /// One line for help and `sape2 info`.
  std::string summary;
  ViTConfig config;
};

const std::vector<Preset>& presets();

/// The preset of that name; throws Error with the nearest valid name otherwise.
const Preset& preset(std::string_view name);

}  // namespace sape2::nn
