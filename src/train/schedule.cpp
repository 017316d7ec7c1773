#include "sape2/train/schedule.h"

#include "sape2/train/recipe.h"

#include <cmath>
#include <numbers>

namespace sape2::train {

Schedule::Schedule(const Recipe& recipe, int64_t steps_per_epoch)
    : steps_(recipe.epochs * steps_per_epoch),
      warmup_steps_(std::llround(recipe.warmup_epochs * static_cast<double>(steps_per_epoch))),
      full_(recipe.learning_rate),
      final_(recipe.final_learning_rate) {}

double Schedule::learning_rate(int64_t step) const {
  if (step < warmup_steps_) {
    return full_ * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  }
  const auto done = static_cast<double>(step - warmup_steps_);
  const auto all = static_cast<double>(steps_ - warmup_steps_);
  return final_ + (full_ - final_) * 0.5 * (1 + std::cos(std::numbers::pi * done / all));
}

}  // namespace sape2::train
