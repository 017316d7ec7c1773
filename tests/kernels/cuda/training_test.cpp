// The kernels of training against loops in float64, without a framework.
#include "sape2/kernels/cuda_training.h"

#include "held.h"

#include <gtest/gtest.h>

namespace sape2::kernels::test {
namespace {

class TrainingKernels : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
  }
};

TEST_P(TrainingKernels, ResidualNorm) {
  const DType type = GetParam();
  Random random(3);
  for (const auto& [images, tokens, width] :
       {std::array<std::size_t, 3>{3, 5, 24}, {2, 70, 192}, {5, 65, 384}, {1, 9, 1028}}) {
    const std::size_t rows = images * tokens, count = rows * width;
    const Held x(random.normal(count, 2), type), branch(random.normal(count, 1), type);
    const Held branch_bias(random.normal(width, 1), type), weight(random.normal(width, 1), type);
    const Held bias(random.normal(width, 1), type), dsum(random.normal(count, 1), type);
    const Held dnormed(random.normal(count, 1), type);
    const Held factor(random.normal(images, 1), DType::float32);
    const Held sum(count, type), normed(count, type), statistics(2 * rows, DType::float32);
    const cuda::ResidualNorm params{.rows = std::int64_t(rows),
                                    .width = std::int64_t(width),
                                    .rows_per_image = std::int64_t(tokens),
                                    .dtype = type,
                                    .epsilon = 1e-6F,
                                    .x = x.data(),
                                    .branch = branch.data(),
                                    .branch_bias = branch_bias.data(),
                                    .factor = factor.floats(),
                                    .weight = weight.data(),
                                    .bias = bias.data()};
    cuda::residual_norm_forward(params, {sum.data(), normed.data(), statistics.floats()}, nullptr);
    const Held dx(count, type), dbranch(count, type), dweight(width, type), dbias(width, type);
    const Held dbranch_bias(width, type);
    const DeviceBytes workspace(cuda::column_sums_workspace(params.rows, params.width, 3));
    cuda::residual_norm_backward(params, sum.data(), statistics.floats(),
                                 {dsum.data(), dnormed.data(), dx.data(), dbranch.data(),
                                  dweight.data(), dbias.data(), dbranch_bias.data()},
                                 workspace.data(), nullptr);
    Numbers sums(count), norms(count), dxs(count), dbranches(count);
    Numbers dweights(width), dbiases(width), dbranch_biases(width);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t start = row * width;
      const double f = factor[row / tokens];
      Numbers value(width);
      for (std::size_t c = 0; c < width; ++c)
        sums[start + c] = value[c] = x[start + c] + f * (branch[start + c] + branch_bias[c]);
      value = rounded(value, type);
      double mean = 0, variance = 0, first = 0, second = 0;
      for (double v : value) mean += v / double(width);
      for (double v : value) variance += (v - mean) * (v - mean) / double(width);
      const double inverse = 1 / std::sqrt(variance + 1e-6);
      for (std::size_t c = 0; c < width; ++c) {
        const double standard = (value[c] - mean) * inverse, g = dnormed[start + c];
        norms[start + c] = standard * weight[c] + bias[c];
        dweights[c] += g * standard;
        dbiases[c] += g;
        first += g * weight[c] / double(width);
        second += g * weight[c] * standard / double(width);
      }
      for (std::size_t c = 0; c < width; ++c) {
        const double standard = (value[c] - mean) * inverse;
        const double d = dsum[start + c] +
                         inverse * (dnormed[start + c] * weight[c] - first - standard * second);
        dxs[start + c] = d;
        dbranches[start + c] = d * f;
        dbranch_biases[c] += d * f;
      }
    }
    expect_near(sum, sums, type, "sum");
    expect_near(normed, norms, type, "normed");
    expect_near(dx, dxs, type, "dx");
    expect_near(dbranch, dbranches, type, "dbranch");
    expect_near(dweight, dweights, type, "dweight");
    expect_near(dbias, dbiases, type, "dbias");
    expect_near(dbranch_bias, dbranch_biases, type, "dbranch_bias");
  }
}

TEST_P(TrainingKernels, BiasGeluAndColumnSums) {
  const DType type = GetParam();
  Random random(4);
  for (const auto& [rows, width] :
       {std::pair<std::size_t, std::size_t>{1, 4}, {333, 100}, {2048, 1536}}) {
    const std::size_t count = rows * width;
    const Held x(random.normal(count, 2), type), bias(random.normal(width, 1), type);
    const Held dout(random.normal(count, 1), type);
    const Held out(count, type), dx(count, type), dbias(width, type), columns(width, type);
    const DeviceBytes workspace(cuda::column_sums_workspace(rows, width, 1));
    cuda::bias_gelu_forward(type, rows, width, x.data(), bias.data(), out.data(), nullptr);
    cuda::bias_gelu_backward(type, rows, width, x.data(), bias.data(), dout.data(), dx.data(),
                             dbias.data(), workspace.data(), nullptr);
    cuda::column_sums(type, rows, width, dout.data(), columns.data(), workspace.data(), nullptr);
    Numbers outs(count), dxs(count), dbiases(width), sums(width);
    for (std::size_t i = 0; i < count; ++i) {
      const double v = x[i] + bias[i % width], below = 0.5 * std::erfc(-v / std::sqrt(2.0));
      outs[i] = v * below;
      dxs[i] = dout[i] * (below + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI));
      dbiases[i % width] += dxs[i];
      sums[i % width] += dout[i];
    }
    expect_near(out, outs, type, "out");
    expect_near(dx, dxs, type, "dx");
    expect_near(dbias, dbiases, type, "dbias");
    expect_near(columns, sums, type, "columns");
  }
}

TEST_P(TrainingKernels, CrossEntropy) {
  const DType type = GetParam();
  Random random(5);
  for (const auto& [images, classes] :
       {std::pair<std::size_t, std::size_t>{1, 2}, {130, 10}, {40, 1000}}) {
    Numbers wanted = random.normal(images * classes, 1);
    for (double& target : wanted) target = std::abs(target) / double(classes);
    const Held logits(random.normal(images * classes, 3), type), targets(wanted, DType::float32);
    const Held loss(1, DType::float32), dlogits(images * classes, type);
    cuda::cross_entropy(type, images, classes, logits.data(), targets.floats(), 0.125F,
                        loss.floats(), dlogits.data(), nullptr);
    Numbers total(1), gradients(images * classes);
    for (std::size_t image = 0; image < images; ++image) {
      const std::size_t start = image * classes;
      double sum = 0, all = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        sum += std::exp(logits[start + c]);
        all += targets[start + c];
      }
      for (std::size_t c = 0; c < classes; ++c) {
        total[0] -= 0.125 * targets[start + c] * (logits[start + c] - std::log(sum));
        gradients[start + c] =
            0.125 * (all * std::exp(logits[start + c]) / sum - targets[start + c]);
      }
    }
    expect_near(loss, total, DType::float32, "loss");
    expect_near(dlogits, gradients, type, "dlogits");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TrainingKernels, testing::ValuesIn(kTypes));

}  // namespace
}  // namespace sape2::kernels::test
