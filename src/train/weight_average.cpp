#include "sape2/train/weight_average.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sape2::train {

WeightAverage::WeightAverage(const at::Tensor& weights, double decay)
    : value_(weights.clone()), decay_(decay) {}

double WeightAverage::share(int64_t step) const {
  const auto count = static_cast<double>(step);
  return 1 - std::min(decay_, (1 + count) / (10 + count));
}

}  // namespace sape2::train
