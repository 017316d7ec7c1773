#include "sape2/train/adam.h"

#include "train/adam_update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <vector>

namespace sape2::train {
namespace {

constexpr int64_t kChunk = 1 << 15;

}  // namespace

Adam::Adam(at::Tensor weights, int64_t decayed, Options options)
    : weights_(std::move(weights)),
      mean_(at::zeros_like(weights_)),
      square_(at::zeros_like(weights_)),
      decayed_(decayed),
      options_(options) {}

void Adam::step(const at::Tensor& gradients, double learning_rate,
                const at::Tensor& gradient_scale) {
  ++steps_done_;
  update(0, decayed_, options_.weight_decay, gradients, learning_rate, gradient_scale);
  update(decayed_, weights_.numel(), 0, gradients, learning_rate, gradient_scale);
}

void Adam::update(int64_t begin, int64_t end, double decay, const at::Tensor& gradients,
                  double learning_rate, const at::Tensor& gradient_scale) {
  if (begin == end) return;
  const double step = static_cast<double>(steps_done_);
  const double step_size = learning_rate / (1 - std::pow(options_.beta1, step));
  const double square_scale = 1 / std::sqrt(1 - std::pow(options_.beta2, step));
  const double gradient_decay = options_.decoupled ? 0 : decay;
  const double keep = options_.decoupled ? 1 - learning_rate * decay : 1;

  if (weights_.is_cpu() && weights_.scalar_type() == at::kFloat) {
    const AdamFactors factors{
        static_cast<float>(options_.beta1),   static_cast<float>(options_.beta2),
        static_cast<float>(options_.epsilon), static_cast<float>(step_size),
        static_cast<float>(square_scale),     gradient_scale.item<float>(),
        static_cast<float>(gradient_decay),   static_cast<float>(keep)};
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
  if (gradient_decay != 0) gradient.add_(weights, gradient_decay);
  mean.mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
  square.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
  const at::Tensor denominator = square.sqrt().mul_(square_scale).add_(options_.epsilon);
  weights.mul_(keep).addcdiv_(mean, denominator, -step_size);
}

at::Tensor norm_of(const at::Tensor& flat) {
  if (!flat.is_cpu() || flat.scalar_type() != at::kFloat) return flat.norm();
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
  return at::full({}, std::sqrt(total), flat.options());
}

at::Tensor clip_factor(const at::Tensor& norm, double largest) {
  if (largest == 0) return at::ones_like(norm);
  return (largest / (norm + 1e-6)).clamp_max(1);
}

}  // namespace sape2::train
