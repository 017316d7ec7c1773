#include "sape2/study/probes.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/data/shapes.h"
#include "sape2/nn/vit.h"

#include "study/probes/probe.h"

namespace sape2::study {

const std::vector<std::string>& probe_names() {
  static const std::vector<std::string> names{"sizes", "scale", "translation", "region", "gates"};
  return names;
}

ProbeResult run_probe(const std::string& name, nn::ViT& model, const ProbeOptions& options) {
  if (name == "sizes") return probe_sizes(model, options);
  if (name == "scale") return probe_scale(model, options);
  if (name == "translation") return probe_translation(model, options);
  if (name == "region") return probe_region(model, options);
  if (name == "gates") return probe_gates(model, options);
  throw Error("the probe " + in_quotes(name) + " is not known; " +
              name_advice(name, probe_names()));
}

bool knows_shapes(const nn::ViT& model) {
  return takes_shapes(model) &&
         model.config().class_names ==
             data::make_shapes({.split = data::Split::test, .count = 1}).dataset.class_names;
}

bool takes_shapes(const nn::ViT& model) {
  const nn::ViTConfig& vit = model.config().vit;
  return vit.channels == 3 && vit.image_size.height == vit.image_size.width;
}

}  // namespace sape2::study
