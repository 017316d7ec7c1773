#include "sape2/io/model_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/vit.h"

#include "io/model_keys.h"
#include "io/model_tensors.h"

#include <ATen/ATen.h>

#include <string>

namespace sape2::io {
namespace {

void check_extra_keys(const Metadata& extra) {
  for (const auto& [key, value] : extra) {
    if (is_model_key(key)) {
      throw Error("the metadata key " + in_quotes(key) +
                  " is the model file's own, choose another one");
    }
  }
}

// Parameters and buffers by name, as they are in the model (not copies).
NamedTensors tensors_of(const nn::ViT& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

// Everything is compared with a model that has shapes but no memory, so that a configuration
// cannot ask for more memory than the file has weights for.
void check_tensors(const SafetensorsFile& file, const nn::ModelConfig& config) {
  check_depth(file, config);
  using Kind = nn::Initialisation::Kind;
  const nn::ViT outline(config, {.kind = Kind::shapes_only, .seed = 0});
  const NamedTensors wanted = tensors_of(outline);
  for (const auto& [name, tensor] : wanted) model_tensor(file, name, tensor.sizes().vec());
  refuse_other_tensors(file, [&](const std::string& name) { return wanted.contains(name); });
}

}  // namespace

void save_model(const std::filesystem::path& path, const nn::ViT& model,
                const SaveModelOptions& options) {
  check_extra_keys(options.extra);
  Metadata metadata = options.extra;
  metadata[kFormatKey] = "pt";
  metadata[kVersionKey] = kModelVersion;
  metadata[kConfigKey] = nn::to_json(model.config());
  NamedTensors tensors = tensors_of(model);
  const auto type = options.weights == WeightType::bfloat16 ? at::kBFloat16 : at::kFloat;
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(type);
  save_tensors(path, tensors, metadata);
}

std::shared_ptr<nn::ViT> load_model(const std::filesystem::path& path) {
  {
    // First by the header, so that no memory is taken for tensors that do not fit.
    const auto header = SafetensorsFile::open_header(path);
    check_tensors(header, read_model_config(header));
  }
  const auto file = SafetensorsFile::open(path);
  const nn::ModelConfig config = check_model(file);
  using Kind = nn::Initialisation::Kind;
  auto model =
      std::make_shared<nn::ViT>(config, nn::Initialisation{.kind = Kind::uninitialised, .seed = 0});
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors_of(*model)) tensor.copy_(to_tensor(file, file.at(name)));
  model->eval();
  return model;
}

nn::ModelConfig check_model(const SafetensorsFile& file) {
  nn::ModelConfig config = read_model_config(file);
  check_tensors(file, config);
  check_weights(file);
  return config;
}

}  // namespace sape2::io
