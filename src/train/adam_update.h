#pragma once

#include <cstdint>

/// The arithmetic of Adam on plain arrays, without LibTorch.
namespace sape2::train {

/// What an update of one element needs, the same for all of them.
struct AdamFactors {
  float beta1;
  float beta2;
  float epsilon;
  float step_size;       ///< learning rate over the mean's bias correction
  float square_scale;    ///< 1/√ of the square's bias correction
  float gradient_scale;  ///< of clipping
  float gradient_decay;  ///< factor on the weight that joins the gradient (Adam)
  float keep;            ///< what decoupled decay leaves of a weight (AdamW)
};

void adam_update(float* weights, const float* gradients, float* mean, float* square, int64_t count,
                 const AdamFactors& factors);

/// In double, in the order of the array.
double sum_of_squares(const float* values, int64_t count);

}  // namespace sape2::train
