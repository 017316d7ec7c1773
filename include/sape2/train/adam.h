#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace sape2::train {

/// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019) over one flat block of
/// weights, of which the leading `decayed` elements decay. One fused pass for float32 on the CPU
/// and on NVIDIA GPUs, the same formula from LibTorch's operations elsewhere.
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

  /// What follows from new weights; either may be undefined.
  struct Followers {
    at::Tensor average;  ///< float32, moves towards them
    at::Tensor copy;     ///< the leading ones in another type
  };

  /// `weights` and the followers are changed in place by step().
  Adam(at::Tensor weights, int64_t decayed, Options options, Followers followers);
  Adam(at::Tensor weights, int64_t decayed, Options options)
      : Adam(std::move(weights), decayed, options, {}) {}

  /// The numbers of update number `step`, from 1, as a small tensor of the weights' type on the
  /// CPU. Apart from them, every step does the same: a GPU may repeat it from a recording.
  at::Tensor numbers(int64_t step, double learning_rate, double average_share = 0) const;

  /// One update with gradients scaled by `gradient_scale` (0-dim). Both it and the numbers are on
  /// the weights' device.
  void step(const at::Tensor& gradients, const at::Tensor& gradient_scale,
            const at::Tensor& numbers);

  /// The running mean of the gradients and of their squares: the state a checkpoint keeps.
  const at::Tensor& mean() const { return mean_; }
  const at::Tensor& square() const { return square_; }

 private:
  void update(int64_t begin, int64_t end, bool decays, const at::Tensor& gradients,
              const at::Tensor& gradient_scale, const at::Tensor& numbers);
  double gradient_decay() const { return options_.decoupled ? 0 : options_.weight_decay; }

  at::Tensor weights_, mean_, square_;
  int64_t decayed_;
  Options options_;
  Followers followers_;
};

/// `[norm, factor]` of a flat tensor, beside it: the factor makes it no longer than `largest`; 0:
/// any length. In float32 on the CPU it does not depend on the number of threads.
at::Tensor clipped_norm(const at::Tensor& flat, double largest);

}  // namespace sape2::train
