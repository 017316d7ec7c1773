#include "sape2/io/model_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/checksum.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/vit.h"

#include "io/finite.h"
#include "io/shape_text.h"

#include <ATen/ATen.h>

#include <string>
#include <string_view>
#include <utility>

namespace sape2::io {
namespace {

// Metadata keys. "format" is what other programs look for to know whose tensors these are.
constexpr std::string_view kOwnPrefix = "sape2_";
const std::string kFormatKey = "format";
const std::string kVersionKey = "sape2_format_version";
const std::string kConfigKey = "sape2_config";
const std::string kVersion = "1";

std::string name_of(const SafetensorsFile& file) {
  return in_quotes(file.path());
}

bool is_own_key(const std::string& key) {
  return key == kFormatKey || key.starts_with(kOwnPrefix);
}

void check_extra_keys(const Metadata& extra) {
  for (const auto& [key, value] : extra) {
    if (is_own_key(key)) {
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

void check_tensor(const SafetensorsFile& file, const std::string& name, const at::Tensor& wanted) {
  const std::vector<std::int64_t> shape = wanted.sizes().vec();
  const TensorView* found = file.find(name);
  if (found == nullptr) {
    throw Error(name_of(file) + " has no tensor " + in_quotes(name) + ", expected one of shape " +
                shape_text(shape));
  }
  if (found->shape != shape) {
    throw Error(name_of(file) + ": tensor " + in_quotes(name) + " has the shape " +
                shape_text(found->shape) + ", expected " + shape_text(shape));
  }
  if (found->dtype != Dtype::f32 && found->dtype != Dtype::bf16) {
    throw Error(name_of(file) + ": tensor " + in_quotes(name) + " has the dtype " +
                std::string(dtype_name(found->dtype)) + ", expected F32 or BF16");
  }
}

// Everything is compared with a model that has shapes but no memory, so that a configuration
// cannot ask for more memory than the file has weights for.
void check_tensors(const SafetensorsFile& file, const nn::ModelConfig& config) {
  if (static_cast<std::uint64_t>(config.vit.depth) > file.tensors().size()) {
    throw Error(name_of(file) + " has " + std::to_string(file.tensors().size()) +
                " tensors, too few for its configuration's " + std::to_string(config.vit.depth) +
                " layers");
  }
  using Kind = nn::Initialisation::Kind;
  const nn::ViT outline(config, {.kind = Kind::shapes_only, .seed = 0});
  const NamedTensors wanted = tensors_of(outline);
  for (const auto& [name, tensor] : wanted) check_tensor(file, name, tensor);
  for (const TensorView& view : file.tensors()) {
    if (!wanted.contains(view.name)) {
      throw Error(name_of(file) + " has the tensor " + in_quotes(view.name) + " of shape " +
                  shape_text(view.shape) + ", which a model of its configuration does not have");
    }
  }
}

}  // namespace

void save_model(const std::filesystem::path& path, const nn::ViT& model,
                const SaveModelOptions& options) {
  check_extra_keys(options.extra);
  Metadata metadata = options.extra;
  metadata[kFormatKey] = "pt";
  metadata[kVersionKey] = kVersion;
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

void check_weights(const SafetensorsFile& file) {
  verify_checksum(file);
  check_finite(file);
}

nn::ModelConfig read_model_config(const std::filesystem::path& path) {
  return read_model_config(SafetensorsFile::open_header(path));
}

nn::ModelConfig read_model_config(const SafetensorsFile& file) {
  const auto version = file.metadata().find(kVersionKey);
  const auto config = file.metadata().find(kConfigKey);
  if (version == file.metadata().end() || config == file.metadata().end()) {
    throw Error(name_of(file) +
                " has weights but no SaPE² configuration, so the model cannot be built from it");
  }
  if (version->second != kVersion) {
    throw Error(name_of(file) + " is a model file of format version " + in_quotes(version->second) +
                ", expected \"" + kVersion + "\": a newer sape2 may be needed");
  }
  try {
    return nn::model_config_from_json(config->second);
  } catch (const Error& error) {
    throw Error(name_of(file) + ": " + error.what());
  }
}

Metadata further_metadata(const SafetensorsFile& file) {
  Metadata metadata = file.metadata();
  std::erase_if(metadata, [](const auto& entry) { return is_own_key(entry.first); });
  return metadata;
}

}  // namespace sape2::io
