#pragma once

#include <string>

namespace sape2::io {

// Metadata keys of a model file. "format" is what other programs look for to know whose tensors
// these are.
inline const std::string kFormatKey = "format";
inline const std::string kVersionKey = "sape2_format_version";
inline const std::string kConfigKey = "sape2_config";
inline const std::string kModelVersion = "1";

/// Whether a key is the model file's own.
bool is_model_key(const std::string& key);

}  // namespace sape2::io
