#pragma once

#include "sape2/io/safetensors.h"
#include "sape2/nn/model_config.h"

#include <filesystem>
#include <memory>

namespace sape2::nn {
class ViT;
}

/// Whole models in one safetensors file: the weights under timm's names, and in the metadata all
/// that is needed to build the model again and to use it (architecture, encoding, class names,
/// input size, mean and deviation). Other programs read the same file as plain weights.
///
/// Metadata keys: `sape2_format_version` ("1"), `sape2_config` (the JSON of nn::to_json()),
/// `sape2_checksum` (see checksum.h) and, for those other programs, `format` ("pt").

namespace sape2::io {

/// How weights are stored. In memory they are float32.
enum class WeightType { float32, bfloat16 };

struct SaveModelOptions {
  WeightType weights = WeightType::float32;
  /// Further metadata, such as how the model was trained. Keys that begin with "sape2_" and the key
  /// "format" are the model file's own.
  Metadata extra;
};

/// Writes a model. See write_safetensors() for what happens on failure.
void save_model(const std::filesystem::path& path, const nn::ViT& model,
                const SaveModelOptions& options = {});

/// Builds the model that a file describes, with the file's weights, ready for inference (`eval()`).
/// Throws Error with one sentence if check_model() does.
std::shared_ptr<nn::ViT> load_model(const std::filesystem::path& path);

/// All that load_model() asks of a file. Throws Error with one sentence if it is no model file, if
/// a tensor is missing, unexpected or of another shape than the configuration asks for, if the
/// checksum does not fit, or if a weight is not a finite number. Returns the configuration.
nn::ModelConfig check_model(const SafetensorsFile& file);

/// The last two of these, for a file of weights that need not be a model file.
void check_weights(const SafetensorsFile& file);

/// What a model file says of its model, without its weights.
nn::ModelConfig read_model_config(const std::filesystem::path& path);
nn::ModelConfig read_model_config(const SafetensorsFile& file);

/// The metadata of a model file that is not the model file's own: what was saved as `extra`.
Metadata further_metadata(const SafetensorsFile& file);

}  // namespace sape2::io
