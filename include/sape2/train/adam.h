#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sape2::train {

/// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019) over one flat block of
/// weights, of which the leading `decayed` elements decay. One fused pass for float32 on the CPU,
/// the same formula from LibTorch's operations elsewhere.
class Adam {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    /// True: weights shrink by rate · decay (AdamW). False: decay · weight joins the gradient.
    bool decoupled = true;
  };

  /// `weights` is changed in place by step().
  Adam(at::Tensor weights, int64_t decayed, Options options);

  /// One update with gradients scaled by `gradient_scale` (0-dim, on the weights' device).
  void step(const at::Tensor& gradients, double learning_rate, const at::Tensor& gradient_scale);

  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps) { steps_done_ = steps; }

  /// The running mean of the gradients and of their squares: the state a checkpoint keeps.
  const at::Tensor& mean() const { return mean_; }
  const at::Tensor& square() const { return square_; }

 private:
  void update(int64_t begin, int64_t end, double decay, const at::Tensor& gradients,
              double learning_rate, const at::Tensor& gradient_scale);

  at::Tensor weights_, mean_, square_;
  int64_t decayed_;
  Options options_;
  int64_t steps_done_ = 0;
};

/// The norm of a flat float32 tensor as a 0-dim tensor beside it. On the CPU it does not depend on
/// the number of threads.
at::Tensor norm_of(const at::Tensor& flat);

/// The factor on a gradient of that norm which makes it no longer than `largest`; 0: any length.
at::Tensor clip_factor(const at::Tensor& norm, double largest);

}  // namespace sape2::train
