#include "sape2/train/adam.h"

#include "sape2/ops/training.h"

#include "train/adam_update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <vector>

namespace sape2::train {
namespace {

constexpr int64_t kChunk = 1 << 15;
constexpr double kSmallestNorm = 1e-6;  // keeps the factor of clipping finite

// Places in the numbers of a step.
enum Number : int64_t { step_size, square_scale, kept_weight, average_share };

bool fused_on_cpu(const at::Tensor& flat) {
  return flat.is_cpu() && flat.scalar_type() == at::kFloat;
}

bool fused_on_gpu(const at::Tensor& flat) {
  return flat.scalar_type() == at::kFloat && ops::fused_training(flat.view({-1, 4}));
}

double norm_on_cpu(const at::Tensor& flat) {
  const float* values = flat.data_ptr<float>();
  const int64_t count = flat.numel(), chunks = (count + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<std::size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](int64_t from, int64_t to) {
    for (int64_t chunk = from; chunk < to; ++chunk) {
      const int64_t begin = chunk * kChunk;
      sums[static_cast<std::size_t>(chunk)] =
          sum_of_squares(values + begin, std::min(kChunk, count - begin));
    }
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return std::sqrt(total);
}

}  // namespace

Adam::Adam(at::Tensor weights, int64_t decayed, Options options, Followers followers)
    : weights_(std::move(weights)),
      mean_(at::zeros_like(weights_)),
      square_(at::zeros_like(weights_)),
      decayed_(decayed),
      options_(options),
      followers_(std::move(followers)) {}

at::Tensor Adam::numbers(int64_t step, double learning_rate, double share) const {
  const auto count = static_cast<double>(step);
  return at::tensor(
      std::vector<double>{
          learning_rate / (1 - std::pow(options_.beta1, count)),
          1 / std::sqrt(1 - std::pow(options_.beta2, count)),
          options_.decoupled ? 1 - learning_rate * options_.weight_decay : 1,
          share,
      },
      at::dtype(weights_.scalar_type()));
}

void Adam::step(const at::Tensor& gradients, const at::Tensor& gradient_scale,
                const at::Tensor& numbers) {
  if (!weights_.is_cpu() && fused_on_gpu(weights_)) {
    ops::adam_pass({.weights = weights_,
                    .mean = mean_,
                    .square = square_,
                    .gradients = gradients,
                    .average = followers_.average,
                    .copy = followers_.copy,
                    .gradient_scale = gradient_scale,
                    .numbers = numbers,
                    .decayed = decayed_,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .epsilon = options_.epsilon,
                    .gradient_decay = gradient_decay()});
    return;
  }
  update(0, decayed_, true, gradients, gradient_scale, numbers);
  update(decayed_, weights_.numel(), false, gradients, gradient_scale, numbers);
  if (followers_.average.defined()) {
    followers_.average.lerp_(weights_, numbers.select(0, average_share));
  }
  if (followers_.copy.defined()) {
    followers_.copy.copy_(weights_.narrow(0, 0, followers_.copy.numel()));
  }
}

void Adam::update(int64_t begin, int64_t end, bool decays, const at::Tensor& gradients,
                  const at::Tensor& gradient_scale, const at::Tensor& numbers) {
  if (begin == end) return;
  const double decay = decays ? gradient_decay() : 0;
  if (fused_on_cpu(weights_)) {
    const float* number = numbers.data_ptr<float>();
    const AdamFactors factors{static_cast<float>(options_.beta1),
                              static_cast<float>(options_.beta2),
                              static_cast<float>(options_.epsilon),
                              number[step_size],
                              number[square_scale],
                              gradient_scale.item<float>(),
                              static_cast<float>(decay),
                              decays ? number[kept_weight] : 1.0F};
    float* weights = weights_.data_ptr<float>();
    const float* gradient = gradients.data_ptr<float>();
    float* mean = mean_.data_ptr<float>();
    float* square = square_.data_ptr<float>();
    at::parallel_for(begin, end, kChunk, [&](int64_t from, int64_t to) {
      adam_update(weights + from, gradient + from, mean + from, square + from, to - from, factors);
    });
    return;
  }
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  at::Tensor weights = part(weights_), mean = part(mean_), square = part(square_);
  at::Tensor gradient = part(gradients) * gradient_scale;
  if (decay != 0) gradient.add_(weights, decay);
  mean.mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
  square.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
  const at::Tensor denominator =
      square.sqrt().mul_(numbers.select(0, square_scale)).add_(options_.epsilon);
  if (decays) weights.mul_(numbers.select(0, kept_weight));
  weights.sub_(mean.div(denominator).mul_(numbers.select(0, step_size)));
}

at::Tensor clipped_norm(const at::Tensor& flat, double largest) {
  if (!flat.is_cpu() && fused_on_gpu(flat)) return ops::clipping_norm(flat, largest);
  const at::Tensor norm =
      fused_on_cpu(flat) ? at::full({}, norm_on_cpu(flat), flat.options()) : flat.norm();
  const at::Tensor factor =
      largest == 0 ? at::ones_like(norm) : (largest / (norm + kSmallestNorm)).clamp_max(1);
  return at::stack({norm, factor});
}

}  // namespace sape2::train
