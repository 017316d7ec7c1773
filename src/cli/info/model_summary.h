#pragma once

#include "sape2/io/safetensors.h"
#include "sape2/nn/model_config.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace sape2::cli {

/// What a model file holds. A file that no model can be loaded from is refused, as everywhere.
struct ModelSummary {
  std::filesystem::path path;
  std::uintmax_t file_bytes = 0;
  std::int64_t parameters = 0;
  std::string weight_types;  ///< "F32", or "BF16, F32" where they are mixed
  nn::ModelConfig config;
  io::Metadata metadata;  ///< beside the configuration
};

ModelSummary summarise_model(const std::filesystem::path& path);

}  // namespace sape2::cli
