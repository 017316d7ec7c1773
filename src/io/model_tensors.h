#pragma once

#include "sape2/io/safetensors.h"
#include "sape2/nn/model_config.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// What the tensors of a model file must be; each throws Error with one sentence where they are not.
namespace sape2::io {

/// A file has at least one tensor for each layer: asked before anything is made for the layers.
void check_depth(const SafetensorsFile& file, const nn::ModelConfig& config);

/// The tensor of that name; it must be there, have that shape, and be F32 or BF16.
const TensorView& model_tensor(const SafetensorsFile& file, const std::string& name,
                               const std::vector<std::int64_t>& shape);

/// A file has no tensors but those of its model.
void refuse_other_tensors(const SafetensorsFile& file,
                          const std::function<bool(const std::string& name)>& is_wanted);

}  // namespace sape2::io
