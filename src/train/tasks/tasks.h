#pragma once

#include "sape2/train/task.h"

#include <string_view>

namespace sape2::train {

/// One file a task.
const Task& classification_task();
const Task& segmentation_task();

/// Throws Error with one sentence if a recipe's number is not what it is without the augmentation,
/// which the task does not have.
void refuse_value(const Recipe& recipe, std::string_view key, const Task& task);

}  // namespace sape2::train
