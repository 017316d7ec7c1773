#include "serve/json_text.h"

#include <fmt/format.h>

#include <cmath>

namespace sape2::serve {

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

std::string json_numbers(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) {
    if (text.size() > 1) text += ',';
    text += json_number(value);
  }
  return text + "]";
}

}  // namespace sape2::serve
