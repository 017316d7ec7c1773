#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sape2::nn {

struct ModelConfig;

/// What a model's last linear layer looks at, and so what its outputs are.
enum class Head {
  image,   ///< the pooled tokens: `[B, classes]`
  pixels,  ///< each patch, upsampled to pixels: `[B, classes, height, width]`
};

/// What the software says of one task. How it is trained and measured is in src/train/tasks.
struct TaskDefinition {
  std::string name;
  /// One line for help.
  std::string summary;
  Head head;
};

inline constexpr const char* kClassification = "classification";

/// Every task, in the order in which help lists them.
const std::vector<TaskDefinition>& task_definitions();

/// The task of that name; throws Error with the nearest valid name otherwise.
const TaskDefinition& task_definition(std::string_view name);

/// For those who serve classifiers alone: throws Error with one sentence, in which `who` is their
/// name, if the model has another task.
void require_classifier(const ModelConfig& config, std::string_view who);

}  // namespace sape2::nn
