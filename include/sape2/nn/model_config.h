#pragma once

#include "sape2/nn/encoding_spec.h"
#include "sape2/nn/task.h"
#include "sape2/nn/vit_config.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::nn {

/// Longer names of classes are refused: nobody reads them, and drawing them takes minutes.
inline constexpr std::size_t kLongestClassName = 256;

/// Throws Error with one sentence if a name is longer than that (in bytes) or not UTF-8.
void check_class_names(const std::vector<std::string>& names);

/// All that is needed to build a model and to use it: what a model file stores beside the weights.
struct ModelConfig {
  ViTConfig vit;
  EncodingSpec encoding = EncodingSpec::parse("sape2-rel-k");
  /// One name a class, or empty.
  std::vector<std::string> class_names;
  /// Per channel, of pixels in [0, 1]; images are normalised by them before they enter the model.
  /// Empty: no normalisation.
  std::vector<double> mean;
  std::vector<double> deviation;
  /// What the model was trained for: a name of task_definitions().
  std::string task = kClassification;

  Head head() const { return task_definition(task).head; }

  /// Throws Error with one sentence if the values make no model.
  void validate() const;

  bool operator==(const ModelConfig&) const = default;
};

/// As a JSON text, and back. Reading refuses unknown and missing keys and values of the wrong kind
/// with a sentence that names the key, and validates.
std::string to_json(const ModelConfig& config);
ModelConfig model_config_from_json(std::string_view json);

}  // namespace sape2::nn
