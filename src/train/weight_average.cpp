#include "sape2/train/weight_average.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sape2::train {

WeightAverage::WeightAverage(const at::Tensor& weights, double decay)
    : value_(weights.clone()), decay_(decay) {}

void WeightAverage::update(const at::Tensor& weights, int64_t step) {
  const auto count = static_cast<double>(step);
  const double decay = std::min(decay_, (1 + count) / (10 + count));
  value_.lerp_(weights, 1 - decay);
}

}  // namespace sape2::train
