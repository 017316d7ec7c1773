// Configurations, first weights and files of whole models, as the program has them.
#include "sape2/io/model_file.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"
#include "sape2/onnx/export.h"

#include "python/said.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/library.h>

namespace sape2::python {
namespace {

using at::Tensor;
using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;
using Kind = nn::Initialisation::Kind;

/// Of a model's parameters, in the model's order.
std::tuple<Names, std::vector<Tensor>> named(const nn::ViT& model) {
  std::tuple<Names, std::vector<Tensor>> result;
  for (const auto& item : model.named_parameters()) {
    std::get<0>(result).push_back(item.key());
    std::get<1>(result).push_back(item.value().detach());
  }
  return result;
}

/// One line on each preset, by name.
std::string presets() {
  Json all = Json::object();
  for (const nn::Preset& preset : nn::presets()) all[preset.name] = preset.summary;
  return all.dump();
}

std::string preset(std::string name) {
  return said([&] {
    nn::ModelConfig config;
    config.vit = nn::preset(name).config;
    return nn::to_json(config);
  });
}

nn::ModelConfig classifier_from(const std::string& json) {
  nn::ModelConfig config = nn::model_config_from_json(json);
  nn::require_classifier(config, "the Python package");
  return config;
}

/// The configuration that is meant, checked; its encoding in canonical form.
std::string model_config(std::string json) {
  return said([&] { return nn::to_json(classifier_from(json)); });
}

std::tuple<Names, std::vector<Tensor>> model_parameters(std::string json, int64_t seed) {
  return said([&] {
    const nn::ViT model(classifier_from(json),
                        {.kind = Kind::random, .seed = static_cast<uint64_t>(seed)});
    return named(model);
  });
}

Names decayed_parameters(std::string json) {
  return said([&] {
    const nn::ViT outline(classifier_from(json), {.kind = Kind::shapes_only, .seed = 0});
    return Names(outline.decayed_parameters().begin(), outline.decayed_parameters().end());
  });
}

/// Configuration, further metadata (a JSON object of strings), names and weights.
std::tuple<std::string, std::string, Names, std::vector<Tensor>> load_model(std::string path) {
  return said([&] {
    nn::require_classifier(io::read_model_config(path), "the Python package");
    const auto model = io::load_model(path);
    const Json metadata(io::further_metadata(io::SafetensorsFile::open(path)));
    auto [names, values] = named(*model);
    return std::tuple(nn::to_json(model->config()),
                      metadata.dump(-1, ' ', false, Json::error_handler_t::replace),
                      std::move(names), std::move(values));
  });
}

/// The model of a configuration with given weights.
std::unique_ptr<nn::ViT> model_of(const std::string& config, const Names& names,
                                  const std::vector<Tensor>& values) {
  auto model = std::make_unique<nn::ViT>(
      classifier_from(config), nn::Initialisation{.kind = Kind::uninitialised, .seed = 0});
  const at::NoGradGuard no_grad;
  auto parameters = model->named_parameters();
  TORCH_CHECK_VALUE(names.size() == values.size() && names.size() == parameters.size(),
                    "the model has ", names.size(), " tensors, but its configuration asks for ",
                    parameters.size());
  for (size_t i = 0; i < names.size(); ++i) {
    Tensor* wanted = parameters.find(names[i]);
    TORCH_CHECK_VALUE(wanted, "the model has the tensor \"", names[i],
                      "\", which a model of its configuration does not have");
    TORCH_CHECK_VALUE(wanted->sizes() == values[i].sizes(), "tensor \"", names[i],
                      "\" has the shape ", values[i].sizes(), ", expected ", wanted->sizes());
    wanted->copy_(values[i]);
  }
  return model;
}

void save_model(std::string path, std::string config, std::string metadata, Names names,
                std::vector<Tensor> values, bool bfloat16) {
  said([&] {
    io::SaveModelOptions options;
    options.weights = bfloat16 ? io::WeightType::bfloat16 : io::WeightType::float32;
    options.extra = Json::parse(metadata).get<io::Metadata>();
    io::save_model(path, *model_of(config, names, values), options);
  });
}

void export_onnx(std::string path, std::string config, Names names, std::vector<Tensor> values,
                 int64_t height, int64_t width, int64_t opset, std::string input,
                 std::string output) {
  said([&] {
    onnx::export_model(*model_of(config, names, values), path,
                       {.image_size = nn::Size2d{height, width},
                        .normalise = false,
                        .opset = opset,
                        .input = input,
                        .output = output});
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(sape2, m) {
  m.def("_presets() -> str", &presets);
  m.def("_preset(str name) -> str", &preset);
  m.def("_model_config(str json) -> str", &model_config);
  m.def("_model_parameters(str json, int seed) -> (str[] names, Tensor[] values)",
        &model_parameters);
  m.def("_decayed_parameters(str json) -> str[]", &decayed_parameters);
  m.def("_load_model(str path) -> (str config, str metadata, str[] names, Tensor[] values)",
        &load_model);
  m.def(
      "_save_model(str path, str config, str metadata, str[] names, Tensor[] values, bool "
      "bfloat16) -> ()",
      &save_model);
  m.def(
      "_export_onnx(str path, str config, str[] names, Tensor[] values, int height, int width, int "
      "opset, str input, str output) -> ()",
      &export_onnx);
}

}  // namespace sape2::python
