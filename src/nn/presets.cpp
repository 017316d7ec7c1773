#include "sape2/nn/presets.h"

#include "nn/definitions/named.h"

namespace sape2::nn {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"vit-tiny", "12 layers of 192, 3 heads", {.depth = 12, .width = 192, .heads = 3}},
      {"vit-small",
       "12 layers of 384, 6 heads: the paper's",
       {.depth = 12, .width = 384, .heads = 6}},
      {"vit-base", "12 layers of 768, 12 heads", {.depth = 12, .width = 768, .heads = 12}},
      {"vit-compact",
       "9 layers of 192, 12 heads, MLP ratio 2",
       {.depth = 9, .width = 192, .heads = 12, .mlp_ratio = 2}},
      {"vit-micro",
       "4 layers of 96, 3 heads, MLP ratio 2: minutes on a CPU",
       {.depth = 4, .width = 96, .heads = 3, .mlp_ratio = 2}},
  };
  return all;
}

const Preset& preset(std::string_view name) {
  return named(presets(), name, "model preset");
}

}  // namespace sape2::nn
