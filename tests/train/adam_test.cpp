#include "sape2/train/adam.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sape2::train {
namespace {

constexpr int64_t kSize = 100'003;  // several chunks, and a rest
constexpr int64_t kDecayed = 60'001;
constexpr int kSteps = 12;

double rate_of(int step) {
  return 1e-3 * (1 + step % 4);
}

at::Tensor gradient_of(int step) {
  const at::Tensor index = at::arange(kSize, at::kDouble);
  return (index * (0.37 + step)).sin() * (index % 7 + 0.01) * 0.1;
}

at::Tensor start() {
  return (at::arange(kSize, at::kDouble) * 0.11).cos();
}

// The formulas of the papers, one number at a time in double.
std::vector<double> plain_adam(const Adam::Options& options, double gradient_scale) {
  std::vector<double> weights(kSize), mean(kSize), square(kSize);
  std::copy_n(start().data_ptr<double>(), kSize, weights.begin());
  for (int step = 1; step <= kSteps; ++step) {
    const at::Tensor gradients = gradient_of(step);
    for (size_t i = 0; i < kSize; ++i) {
      const double decay = static_cast<int64_t>(i) < kDecayed ? options.weight_decay : 0;
      double g = gradients.data_ptr<double>()[i] * gradient_scale;
      if (!options.decoupled) g += decay * weights[i];
      if (options.decoupled) weights[i] -= rate_of(step) * decay * weights[i];
      mean[i] = options.beta1 * mean[i] + (1 - options.beta1) * g;
      square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
      const double m = mean[i] / (1 - std::pow(options.beta1, step));
      const double s = square[i] / (1 - std::pow(options.beta2, step));
      weights[i] -= rate_of(step) * m / (std::sqrt(s) + options.epsilon);
    }
  }
  return weights;
}

at::Tensor run_adam(const Adam::Options& options, double gradient_scale, at::ScalarType type) {
  at::Tensor weights = start().to(type);
  Adam adam(weights, kDecayed, options);
  for (int step = 1; step <= kSteps; ++step) {
    adam.step(gradient_of(step).to(type), at::full({}, gradient_scale, type),
              adam.numbers(step, rate_of(step)));
  }
  return weights;
}

double largest_difference(const at::Tensor& weights, const std::vector<double>& expected) {
  const at::Tensor wanted = at::tensor(expected, at::kDouble);
  return (weights.to(at::kDouble) - wanted).abs().max().item<double>();
}

class AdamTest : public ::testing::TestWithParam<bool> {
 protected:
  Adam::Options options() const {
    return {.beta1 = 0.85,
            .beta2 = 0.98,
            .epsilon = 1e-6,
            .weight_decay = 0.7,
            .decoupled = GetParam()};
  }
};

TEST_P(AdamTest, FusedPassFollowsTheFormula) {
  const at::Tensor weights = run_adam(options(), 0.5, at::kFloat);
  EXPECT_LT(largest_difference(weights, plain_adam(options(), 0.5)), 2e-6);
}

// What a device without fused kernels runs, in double on the CPU.
TEST_P(AdamTest, TensorOperationsFollowTheFormula) {
  const at::Tensor weights = run_adam(options(), 0.5, at::kDouble);
  EXPECT_LT(largest_difference(weights, plain_adam(options(), 0.5)), 1e-12);
}

TEST_P(AdamTest, ResultDoesNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = run_adam(options(), 0.5, at::kFloat);
  at::set_num_threads(3);
  const at::Tensor three = run_adam(options(), 0.5, at::kFloat);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one, three));
}

INSTANTIATE_TEST_SUITE_P(Decays, AdamTest, ::testing::Bool(),
                         [](const auto& decoupled) { return decoupled.param ? "AdamW" : "Adam"; });

TEST(Norm, IsExactAndTheSameForAnyNumberOfThreads) {
  const at::Tensor values = gradient_of(1);
  const double expected = values.norm().item<double>();
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const float one = clipped_norm(values.to(at::kFloat), 0)[0].item<float>();
  at::set_num_threads(3);
  const float three = clipped_norm(values.to(at::kFloat), 0)[0].item<float>();
  at::set_num_threads(before);
  EXPECT_EQ(one, three);
  EXPECT_NEAR(one / expected, 1, 1e-6);
}

TEST(Norm, ClipsToTheLargestNormOnly) {
  const auto factor = [](double norm, double largest) {
    return clipped_norm(at::full({1}, norm), largest)[1].item<double>();
  };
  EXPECT_NEAR(factor(4, 1), 0.25, 1e-6);
  EXPECT_EQ(factor(0.5, 1), 1);
  EXPECT_EQ(factor(400, 0), 1);
}

}  // namespace
}  // namespace sape2::train
