#include "support/golden.h"

#include "sape2/io/tensor_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

namespace sape2::testing {

GoldenCase load_golden(const std::string& name) {
  const auto path = std::filesystem::path(SAPE2_GOLDEN_DIR) / (name + ".safetensors");
  GoldenCase result{.name = name, .tensors = io::load_tensors(path), .settings = {}};
  const auto file = io::SafetensorsFile::open(path);
  for (const auto& [key, value] : file.metadata()) result.settings[key] = value;
  return result;
}

std::vector<GoldenCase> golden_cases(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SAPE2_GOLDEN_DIR))
    if (entry.path().extension() == ".safetensors" &&
        entry.path().stem().string().starts_with(prefix))
      names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  std::vector<GoldenCase> cases;
  for (const auto& name : names) cases.push_back(load_golden(name));
  return cases;
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const auto wide = expected.to(at::kDouble);
  const double largest = wide.abs().max().item<double>();
  return (actual.to(at::kDouble) - wide).abs().max().item<double>() / std::max(largest, 1e-300);
}

}  // namespace sape2::testing
