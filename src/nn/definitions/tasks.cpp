#include "sape2/base/error.h"
#include "sape2/nn/model_config.h"
#include "sape2/nn/task.h"

#include "nn/definitions/named.h"

namespace sape2::nn {

const std::vector<TaskDefinition>& task_definitions() {
  static const std::vector<TaskDefinition> all{
      {kClassification, "a class for each image", Head::image},
      {"segmentation", "a class for each pixel", Head::pixels},
  };
  return all;
}

const TaskDefinition& task_definition(std::string_view name) {
  return named(task_definitions(), name, "the task");
}

void require_classifier(const ModelConfig& config, std::string_view who) {
  if (config.task == kClassification) return;
  throw Error("the model's task is " + config.task + ", which " + std::string(who) +
              " cannot serve; use sape2 eval, predict, probe, explain or serve");
}

}  // namespace sape2::nn
