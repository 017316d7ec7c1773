#pragma once

#include <span>
#include <string>

namespace sape2::serve {

/// A number of six digits, or null where it is not finite.
std::string json_number(double value);

/// A JSON array of such numbers.
std::string json_numbers(std::span<const float> values);

}  // namespace sape2::serve
