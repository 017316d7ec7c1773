#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/checksum.h"
#include "sape2/io/model_file.h"

#include "io/finite.h"
#include "io/model_keys.h"

// What a model file says beside its weights: no LibTorch.
namespace sape2::io {

bool is_model_key(const std::string& key) {
  return key == kFormatKey || key.starts_with("sape2_");
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
    throw Error(in_quotes(file.path()) +
                " has weights but no SaPE² configuration, so the model cannot be built from it");
  }
  if (version->second != kModelVersion) {
    throw Error(in_quotes(file.path()) + " is a model file of format version " +
                in_quotes(version->second) + ", expected \"" + kModelVersion +
                "\": a newer sape2 may be needed");
  }
  try {
    return nn::model_config_from_json(config->second);
  } catch (const Error& error) {
    throw Error(in_quotes(file.path()) + ": " + error.what());
  }
}

Metadata further_metadata(const SafetensorsFile& file) {
  Metadata metadata = file.metadata();
  std::erase_if(metadata, [](const auto& entry) { return is_model_key(entry.first); });
  return metadata;
}

}  // namespace sape2::io
