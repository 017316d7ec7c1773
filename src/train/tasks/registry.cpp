#include "sape2/base/error.h"
#include "sape2/nn/vit.h"
#include "sape2/train/recipe_fields.h"

#include "train/tasks/tasks.h"

#include <fmt/format.h>

#include <vector>

namespace sape2::train {

namespace {

const std::vector<const Task*>& all_tasks() {
  static const std::vector<const Task*> all{&classification_task(), &segmentation_task()};
  return all;
}

}  // namespace

const Task& task_named(std::string_view name) {
  const std::string& known = nn::task_definition(name).name;
  for (const Task* task : all_tasks()) {
    if (task->definition().name == known) return *task;
  }
  throw Error(fmt::format("the task {} can be read but not trained", known));
}

std::string figure_name(const std::string& key) {
  for (const Task* task : all_tasks()) {
    for (const FigureDefinition& figure : task->figures()) {
      if (figure.key == key) return figure.name;
    }
  }
  return key;
}

const Task& task_of(const nn::ViT& model) {
  return task_named(model.config().task);
}

void refuse_value(const Recipe& recipe, std::string_view key, const Task& task) {
  const RecipeField& field = recipe_field(key, "");
  const RecipeValue off = field.get(Recipe());
  if (field.get(recipe) == off) return;
  throw Error(fmt::format("{} is {}, which the task {} does not know; set it to {}", key,
                          to_string(field.get(recipe)), task.definition().name, to_string(off)));
}

}  // namespace sape2::train
