#include "train/adam_update.h"

#include <cmath>

namespace sape2::train {

// Restrict and -fno-math-errno (see CMakeLists.txt) let the compiler use vector instructions.
void adam_update(float* __restrict weights, const float* __restrict gradients,
                 float* __restrict mean, float* __restrict square, int64_t count,
                 const AdamFactors& factors) {
  const AdamFactors f = factors;
  for (int64_t i = 0; i < count; ++i) {
    const float weight = weights[i];
    const float gradient = gradients[i] * f.gradient_scale + weight * f.gradient_decay;
    const float m = f.beta1 * mean[i] + (1 - f.beta1) * gradient;
    const float s = f.beta2 * square[i] + (1 - f.beta2) * gradient * gradient;
    mean[i] = m;
    square[i] = s;
    weights[i] = weight * f.keep - f.step_size * m / (std::sqrt(s) * f.square_scale + f.epsilon);
  }
}

double sum_of_squares(const float* values, int64_t count) {
  // Several sums side by side: one alone would wait for itself at every addition.
  constexpr int kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int j = 0; j < kSums; ++j) {
      const double value = values[i + j];
      sums[j] += value * value;
    }
  }
  double total = 0;
  for (double sum : sums) total += sum;
  for (; i < count; ++i) total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return total;
}

}  // namespace sape2::train
