#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/nn/model_config.h"
#include "sape2/nn/task.h"

#include <algorithm>

namespace sape2::nn {

const std::vector<TaskDefinition>& task_definitions() {
  static const std::vector<TaskDefinition> all{
      {kClassification, "a class for each image", Head::image},
      {"segmentation", "a class for each pixel", Head::pixels},
  };
  return all;
}

const TaskDefinition& task_definition(std::string_view name) {
  const auto found = std::ranges::find(task_definitions(), name, &TaskDefinition::name);
  if (found != task_definitions().end()) return *found;
  std::vector<std::string> names;
  for (const TaskDefinition& task : task_definitions()) names.push_back(task.name);
  throw Error("the task " + in_quotes(name) + " is not known; " + name_advice(name, names));
}

void require_classifier(const ModelConfig& config, std::string_view who) {
  if (config.task == kClassification) return;
  throw Error("the model's task is " + config.task + ", which " + std::string(who) +
              " cannot serve; use sape2 eval, predict, probe, explain or serve");
}

}  // namespace sape2::nn
