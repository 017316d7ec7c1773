#pragma once

#include <cstdint>

namespace sape2::train {

struct Recipe;

/// The learning rate of every step: linear from 0 to the full rate over the warm-up, then half a
/// cosine down to the final rate.
class Schedule {
 public:
  Schedule(const Recipe& recipe, int64_t steps_per_epoch);

  /// Of step 0 … steps()-1.
  double learning_rate(int64_t step) const;

  int64_t steps() const { return steps_; }
  int64_t warmup_steps() const { return warmup_steps_; }

 private:
  int64_t steps_;
  int64_t warmup_steps_;
  double full_;
  double final_;
};

}  // namespace sape2::train
