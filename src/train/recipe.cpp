#include "sape2/train/recipe.h"

#include "sape2/base/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace sape2::train {
namespace {

// A warm-up longer than this share of a shortened training would leave too little of it.
constexpr double kLongestWarmupShare = 0.25;

}  // namespace

void Recipe::train_for(int64_t number_of_epochs) {
  epochs = number_of_epochs;
  warmup_epochs = std::min(warmup_epochs, kLongestWarmupShare * static_cast<double>(epochs));
}

void Recipe::validate() const {
  if (learning_rate <= 0) {
    throw Error("learning_rate is 0, which trains nothing; expected a number above 0");
  }
  if (final_learning_rate > learning_rate) {
    throw Error(fmt::format("final_learning_rate is {}, above the learning_rate {} it falls from",
                            final_learning_rate, learning_rate));
  }
  if (warmup_epochs > static_cast<double>(epochs)) {
    throw Error(fmt::format("warmup_epochs is {}, more than the {} epochs of the whole training",
                            warmup_epochs, epochs));
  }
  if (batch_size % accumulation != 0) {
    throw Error(fmt::format("batch_size is {}, which accumulation = {} does not divide", batch_size,
                            accumulation));
  }
  if (scale_low > scale_high) {
    throw Error(
        fmt::format("scale_low is {}, above scale_high, which is {}", scale_low, scale_high));
  }
  if (auto_augment && rand_augment_operations > 0) {
    throw Error(fmt::format("auto_augment is true and rand_augment_operations is {}; choose one",
                            rand_augment_operations));
  }
}

}  // namespace sape2::train
