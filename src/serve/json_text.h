#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace sape2::serve {

/// A number of six digits, or null where it is not finite.
std::string json_number(double value);

/// A tensor of one axis as a JSON array of such numbers.
std::string json_numbers(const at::Tensor& values);

}  // namespace sape2::serve
