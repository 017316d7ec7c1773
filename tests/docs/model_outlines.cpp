// Prints, as JSON, the names and shapes of the tensors of many small models: every encoding with
// every option that it has, every pooling, with and without registers and LayerScale, and for
// segmentation.
// model_file_test.py compares them with docs/model-file.md.
#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/vit.h"

#include <nlohmann/json.hpp>

#include <iostream>

namespace {

using namespace sape2::nn;
using Json = nlohmann::ordered_json;

// Two shapes whose numbers differ, so that no two symbols of the page always have one value.
const std::vector<ViTConfig> kShapes{
    {.image_size = {8, 18},
     .patch_size = {2, 3},
     .channels = 5,
     .classes = 11,
     .depth = 2,
     .width = 24,
     .heads = 3,
     .mlp_ratio = 2,
     .registers = 2},
    {.image_size = {20, 10},
     .patch_size = {4, 5},
     .channels = 1,
     .classes = 7,
     .depth = 3,
     .width = 40,
     .heads = 5,
     .mlp_ratio = 3,
     .registers = 0},
};

// Options as they hold for a model, defaults included; null where the default depends on the model.
Json options_of(const EncodingSpec& spec) {
  Json json = Json::object();
  for (const EncodingOption& option : encoding_definition(spec.name()).options) {
    Json& value = json[option.name];
    if (option.kind == OptionKind::choice) value = spec.choice(option.name);
    if (option.kind == OptionKind::number && spec.number(option.name)) {
      value = *spec.number(option.name);
    }
    if (option.kind == OptionKind::integer && spec.integer(option.name)) {
      value = *spec.integer(option.name);
    }
  }
  return json;
}

Json outline(const ViTConfig& vit, const EncodingSpec& spec,
             const std::string& task = kClassification) {
  const ModelConfig config{.vit = vit, .encoding = spec, .task = task};
  const ViT model(config, {.kind = Initialisation::Kind::shapes_only});
  Json tensors = Json::object();
  for (const auto& item : model.named_parameters())
    tensors[item.key()] = item.value().sizes().vec();
  for (const auto& item : model.named_buffers()) tensors[item.key()] = item.value().sizes().vec();
  return {{"config", Json::parse(to_json(config))},
          {"name", spec.name()},
          {"ape", spec.with_ape()},
          {"options", options_of(spec)},
          {"tensors", tensors}};
}

// The encoding as it is, with APE, and with each value of each option that may change its tensors.
std::vector<std::string> variants(const EncodingDefinition& definition) {
  std::vector<std::string> all{definition.name};
  if (definition.name != "ape") all.push_back(definition.name + "+ape");
  for (const EncodingOption& option : definition.options) {
    std::vector<std::string> values = option.choices;
    if (option.kind == OptionKind::integer) values = {"9"};
    for (const std::string& value : values) {
      all.push_back(definition.name + "[" + option.name + "=" + value + "]");
    }
  }
  return all;
}

}  // namespace

int main() {
  Json all = Json::array();
  for (const ViTConfig& shape : kShapes) {
    for (const EncodingDefinition& definition : encoding_definitions()) {
      for (const std::string& text : variants(definition)) {
        all.push_back(outline(shape, EncodingSpec::parse(text)));
      }
    }
    for (const Pooling pooling : {Pooling::mean, Pooling::sequence, Pooling::class_token}) {
      ViTConfig vit = shape;
      vit.pooling = pooling;
      vit.layer_scale = 0.1;
      all.push_back(outline(vit, EncodingSpec::parse("sape2-rel-k+ape")));
      all.push_back(outline(vit, EncodingSpec::parse("cope")));
      all.push_back(outline(vit, EncodingSpec::parse("sape2-k+ape"), "segmentation"));
    }
  }
  std::cout << all.dump() << "\n";
}
