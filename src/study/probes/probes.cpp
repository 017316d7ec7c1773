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

std::vector<std::string> figure_columns(const train::Task& task, const std::string& labels) {
  std::vector<std::string> columns{labels};
  for (const auto& figure : task.figures()) columns.push_back(figure.name + " %");
  columns.push_back("loss");
  return columns;
}

std::vector<double> figure_values(const train::Measured& measured) {
  std::vector<double> values;
  for (const train::Figure& figure : measured.figures) values.push_back(100 * figure.value);
  values.push_back(measured.loss);
  return values;
}

data::Dataset shapes_for(const train::Task& task, const data::ShapesOptions& options) {
  data::Shapes shapes = data::make_shapes(options);
  return task.target() == data::Target::masks ? data::with_masks(std::move(shapes))
                                              : std::move(shapes.dataset);
}

bool knows_shapes(const nn::ViT& model) {
  const data::ShapesOptions one{.split = data::Split::test, .count = 1};
  return takes_shapes(model) &&
         model.config().class_names == shapes_for(train::task_of(model), one).class_names;
}

bool takes_shapes(const nn::ViT& model) {
  const nn::ViTConfig& vit = model.config().vit;
  return vit.channels == 3 && vit.image_size.height == vit.image_size.width;
}

}  // namespace sape2::study
