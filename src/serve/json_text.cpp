#include "serve/json_text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace sape2::serve {

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

std::string json_numbers(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  const auto entry = wide.accessor<double, 1>();
  std::string text = "[";
  for (std::int64_t i = 0; i < wide.size(0); ++i) {
    if (i > 0) text += ',';
    text += json_number(entry[i]);
  }
  return text + "]";
}

}  // namespace sape2::serve
