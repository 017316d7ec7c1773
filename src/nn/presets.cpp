#include "sape2/nn/presets.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <algorithm>

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
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found != presets().end()) return *found;
  std::vector<std::string> names;
  for (const Preset& known : presets()) names.push_back(known.name);
  throw Error("model preset " + in_quotes(name) + " is not known; " + name_advice(name, names));
}

}  // namespace sape2::nn
