#pragma once

#include "sape2/io/safetensors.h"

namespace sape2::io {

/// Throws an Error that names the tensor and the place if a tensor of F32 or BF16 holds an infinity
/// or a NaN: a model with one computes nonsense that may look like an answer.
void check_finite(const SafetensorsFile& file);

}  // namespace sape2::io
