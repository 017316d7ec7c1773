#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sape2::train {

/// An exponential moving average of flat weights. Over the first steps it forgets faster,
/// min(decay, (1 + step) / (10 + step)), so that the random start does not linger.
class WeightAverage {
 public:
  WeightAverage(const at::Tensor& weights, double decay);

  /// How far it moves towards the weights after the optimiser's step number `step`, from 0.
  double share(int64_t step) const;

  const at::Tensor& value() const { return value_; }

 private:
  at::Tensor value_;
  double decay_;
};

}  // namespace sape2::train
