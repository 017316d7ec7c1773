// Linear layers' own kernels against loops in float64, without a framework.
#include "sape2/base/error.h"
#include "sape2/kernels/cuda_training.h"

#include "held.h"

#include <gtest/gtest.h>

#include <list>

namespace sape2::kernels::test {
namespace {

constexpr DType kType = DType::bfloat16;

double below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}
double slope(double x) {
  return below(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

/// a (rows, depth) · b, b (width, depth) or, turned, (depth, width).
Numbers product(const Held& a, const Held& b, std::size_t rows, std::size_t depth,
                std::size_t width, bool turned) {
  Numbers out(rows * width);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t k = 0; k < depth; ++k)
      for (std::size_t column = 0; column < width; ++column)
        out[row * width + column] +=
            a[row * depth + k] * b[turned ? k * width + column : column * depth + k];
  return out;
}

/// Runs twice, with the same bits each time.
template <typename Run>
void expect_repeatable(const std::vector<const Held*>& results, const Run& run) {
  std::vector<Numbers> first;
  run();
  for (const Held* result : results) first.push_back(result->read());
  run();
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i]->read(), first[i]);
}

class LinearKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
    if (!cuda::linear_serves(8192, 64, 64)) GTEST_SKIP() << "kernels here are not sm_90a's";
  }
};

// Rows, inputs and outputs: whole tiles and others, one chunk and more than the ring holds, several
// turns of each warpgroup; the last fills 132 multiprocessors, so that wide tiles are chosen.
constexpr std::size_t kSizes[][3] = {{128, 64, 192},   {1000, 384, 384}, {77, 24, 200},
                                     {1, 64, 8},       {3000, 192, 128}, {130, 328, 72},
                                     {3000, 136, 1536}};

TEST_F(LinearKernels, LinearGelu) {
  Random random(7);
  for (const auto& [rows, inputs, outputs] : kSizes) {
    const Held x(random.normal(rows * inputs, 1), kType);
    const Held weight(random.normal(outputs * inputs, 1 / std::sqrt(double(inputs))), kType);
    const Held bias(random.normal(outputs, 0.5), kType);
    const Held out(rows * outputs, kType), derivative(rows * outputs, kType);
    const cuda::LinearGelu params{.rows = std::int64_t(rows),
                                  .inputs = std::int64_t(inputs),
                                  .outputs = std::int64_t(outputs),
                                  .x = x.data(),
                                  .weight = weight.data(),
                                  .bias = bias.data(),
                                  .out = out.data(),
                                  .derivative = derivative.data()};
    expect_repeatable({&out, &derivative}, [&] { cuda::linear_gelu(params, nullptr); });
    Numbers outs = product(x, weight, rows, inputs, outputs, false), slopes(outs);
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const double value = outs[i] + bias[i % outputs];
      outs[i] = value * below(value);
      slopes[i] = slope(value);
    }
    expect_near(out, outs, kType, "out");
    expect_near(derivative, slopes, kType, "derivative");
  }
}

TEST_F(LinearKernels, LinearGeluBackward) {
  Random random(8);
  for (const auto& [rows, outputs, inputs] : kSizes) {
    const Held dy(random.normal(rows * outputs, 1), kType);
    const Held weight(random.normal(outputs * inputs, 1 / std::sqrt(double(outputs))), kType);
    const Held derivative(random.normal(rows * inputs, 1), kType);
    const Held dx(rows * inputs, kType), dbias(inputs, kType);
    const DeviceBytes workspace(cuda::column_sums_workspace(rows, inputs, 1));
    const cuda::LinearGeluGradient params{.rows = std::int64_t(rows),
                                          .inputs = std::int64_t(inputs),
                                          .outputs = std::int64_t(outputs),
                                          .dy = dy.data(),
                                          .weight = weight.data(),
                                          .derivative = derivative.data(),
                                          .dx = dx.data(),
                                          .dbias = dbias.data(),
                                          .workspace = workspace.data()};
    expect_repeatable({&dx, &dbias}, [&] { cuda::linear_gelu_backward(params, nullptr); });
    Numbers dxs = product(dy, weight, rows, outputs, inputs, true), dbiases(inputs);
    for (std::size_t i = 0; i < dxs.size(); ++i) {
      dxs[i] *= derivative[i];
      dbiases[i % inputs] += dxs[i];
    }
    expect_near(dx, dxs, kType, "dx");
    expect_near(dbias, dbiases, kType, "dbias");
  }
}

TEST_F(LinearKernels, WeightGradients) {
  struct Layer {
    std::size_t rows, outputs, inputs;
    Held dy, x, out;
    Layer(Random& random, const std::size_t (&sizes)[3])
        : rows(sizes[0]),
          outputs(sizes[1]),
          inputs(sizes[2]),
          dy(random.normal(rows * outputs, 1), kType),
          x(random.normal(rows * inputs, 1), kType),
          out(outputs * inputs, kType) {}
  };
  Random random(9);
  std::list<Layer> layers;
  for (const auto& sizes : kSizes) layers.emplace_back(random, sizes);
  // More than one launch has.
  while (layers.size() < 50) layers.emplace_back(random, kSizes[0]);
  std::vector<cuda::WeightGradient> gradients;
  std::vector<const Held*> results;
  for (const Layer& layer : layers) {
    gradients.push_back({std::int64_t(layer.rows), std::int64_t(layer.outputs),
                         std::int64_t(layer.inputs), layer.dy.data(), layer.x.data(),
                         layer.out.data()});
    results.push_back(&layer.out);
  }
  expect_repeatable(results, [&] {
    cuda::weight_gradients(gradients.data(), std::int64_t(gradients.size()), nullptr);
  });
  for (const Layer& layer : layers) {
    Numbers wanted(layer.outputs * layer.inputs);
    for (std::size_t row = 0; row < layer.rows; ++row)
      for (std::size_t o = 0; o < layer.outputs; ++o)
        for (std::size_t i = 0; i < layer.inputs; ++i)
          wanted[o * layer.inputs + i] +=
              layer.dy[row * layer.outputs + o] * layer.x[row * layer.inputs + i];
    expect_near(layer.out, wanted, kType, "out");
  }
}

TEST_F(LinearKernels, RefuseWhatTheyDoNotServe) {
  EXPECT_FALSE(cuda::linear_serves(8192, 4096, 1024));
  EXPECT_FALSE(cuda::linear_serves(8192, 100, 64));
  EXPECT_FALSE(cuda::linear_serves(1024, 64, 64));
  EXPECT_THROW(cuda::linear_gelu({.rows = 1, .inputs = 4096, .outputs = 64}, nullptr), Error);
  EXPECT_THROW(cuda::linear_gelu({.rows = 0, .inputs = 64, .outputs = 64}, nullptr), Error);
  EXPECT_THROW(cuda::linear_gelu_backward({.rows = 0, .inputs = 64, .outputs = 64}, nullptr),
               Error);
  const cuda::WeightGradient unaligned{.rows = 64, .outputs = 100, .inputs = 64};
  EXPECT_THROW(cuda::weight_gradients(&unaligned, 1, nullptr), Error);
  EXPECT_FALSE(cuda::weight_gradient_serves(64, 384, 384));
  EXPECT_TRUE(cuda::weight_gradient_serves(8192, 384, 1536));
}

}  // namespace
}  // namespace sape2::kernels::test
