#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sape2::train {

/// An exponential moving average of flat weights. Over the first steps it forgets faster,
/// min(decay, (1 + step) / (10 + step)), so that the random start does not linger.
class WeightAverage {
 public:
  WeightAverage(const at::Tensor& weights, double decay);

  /// After the optimiser's step number `step`, counted from 0.
  void update(const at::Tensor& weights, int64_t step);

  const at::Tensor& value() const { return value_; }

 private:
  at::Tensor value_;
  double decay_;
};

}  // namespace sape2::train
