#pragma once

#include "sape2/ops/ops.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace sape2::testing {

/// One golden file: float64 tensors and the settings that made them.
struct GoldenCase {
  std::string name;
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> settings;

  bool has(const std::string& tensor) const { return tensors.count(tensor) > 0; }
  double number(const std::string& setting) const { return std::stod(settings.at(setting)); }
  int64_t integer(const std::string& setting) const { return std::stoll(settings.at(setting)); }
};

GoldenCase load_golden(const std::string& name);

/// All files whose name begins with `prefix`, sorted.
std::vector<GoldenCase> golden_cases(const std::string& prefix);

/// The largest difference, over the largest absolute value of `expected`.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace sape2::testing
