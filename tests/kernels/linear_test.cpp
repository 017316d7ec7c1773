#include "sape2/kernels/linear.h"

#include "sape2/base/error.h"
#include "sape2/kernels/runtime.h"

#include "kernels/targets.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

// Linear layers, LayerNorm and rotation against the plain formulas, on every SIMD target: the error
// against float64 is at most twice that of the formula in float32.
namespace sape2::kernels {
namespace {

using testing::for_each_target;

std::vector<float> random_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

struct LinearCase {
  std::int64_t rows, inputs, outputs;
};

struct Inputs {
  explicit Inputs(const LinearCase& c)
      : x(random_numbers(c.rows * c.inputs, 1)),
        weights(random_numbers(c.outputs * c.inputs, 2)),
        bias(random_numbers(c.outputs, 3)),
        factor(random_numbers(c.outputs, 4)),
        added(random_numbers(c.rows * c.outputs, 5)) {}
  std::vector<float> x, weights, bias, factor, added;
};

template <typename Number>
Number gelu(Number x) {
  return x / 2 * (1 + std::erf(x / std::sqrt(Number{2})));
}

/// The plain formula, from the first input to the last.
template <typename Number>
std::vector<Number> plain_linear(const LinearCase& c, const Inputs& in, bool with_gelu) {
  std::vector<Number> y;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t o = 0; o < c.outputs; ++o) {
      Number sum = 0;
      for (std::int64_t i = 0; i < c.inputs; ++i) {
        sum += static_cast<Number>(in.x[r * c.inputs + i]) *
               static_cast<Number>(in.weights[o * c.inputs + i]);
      }
      sum += static_cast<Number>(in.bias[o]);
      if (with_gelu) sum = gelu(sum);
      y.push_back(sum * static_cast<Number>(in.factor[o]) +
                  static_cast<Number>(in.added[r * c.outputs + o]));
    }
  }
  return y;
}

template <typename Some, typename Other>
double largest_difference(const Some& some, const Other& other) {
  double largest = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    const double difference = std::abs(static_cast<double>(some[i]) - other[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

/// All that a layer can do at once, on inputs that `x` holds: its error may be twice that of the
/// plain formula.
template <typename Rows>
void expect_as_exact_as_plain(const LinearCase& c, const Inputs& in, const PackedWeights& packed,
                              const Rows& x) {
  SCOPED_TRACE(std::to_string(c.rows) + " " + std::to_string(c.inputs) + " " +
               std::to_string(c.outputs));
  for (const bool with_gelu : {false, true}) {
    std::vector<float> y = in.added;  // what is added may be the output
    linear(packed, c.rows, x, {y.data(), c.outputs},
           {.bias = in.bias.data(),
            .activation = with_gelu ? Activation::gelu : Activation::none,
            .factor = in.factor.data(),
            .added = y.data(),
            .added_stride = c.outputs});
    const auto exact = plain_linear<double>(c, in, with_gelu);
    const auto plain = plain_linear<float>(c, in, with_gelu);
    EXPECT_LE(largest_difference(y, exact), 2 * largest_difference(plain, exact) + 1e-6);
  }
}

const std::vector<LinearCase> kCases{{1, 1, 1},    {1, 192, 10}, {2, 5, 16},
                                     {3, 48, 17},  {7, 33, 47},  {8, 64, 48},
                                     {9, 100, 64}, {13, 31, 79}, {64, 192, 96}};

TEST(Linear, FollowsTheFormula) {
  for_each_target([] {
    for (const LinearCase& c : kCases) {
      const Inputs in(c);
      const PackedWeights packed(in.weights.data(), DType::float32, c.outputs, c.inputs);
      expect_as_exact_as_plain(c, in, packed, ConstRows{in.x.data(), c.inputs});
    }
  });
}

TEST(Linear, TakesBfloat16AsItIs) {
  for_each_target([] {
    for (const LinearCase& c : kCases) {
      Inputs in(c);
      // A byte further on, as in a file whose header has an odd length.
      std::vector<std::uint8_t> file(in.weights.size() * 2 + 1);
      for (std::size_t i = 0; i < in.weights.size(); ++i) {
        const auto upper =
            static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(in.weights[i]) >> 16);
        std::memcpy(file.data() + 1 + 2 * i, &upper, 2);
        in.weights[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
      }
      const PackedWeights narrow(file.data() + 1, DType::bfloat16, c.outputs, c.inputs);
      const PackedWeights wide(in.weights.data(), DType::float32, c.outputs, c.inputs);
      EXPECT_LE(narrow.bytes(), wide.bytes() / 2 + static_cast<std::size_t>(c.outputs + 16) * 2);
      std::vector<float> y(in.added.size()), expected(in.added.size());
      linear(narrow, c.rows, {in.x.data(), c.inputs}, {y.data(), c.outputs}, {});
      linear(wide, c.rows, {in.x.data(), c.inputs}, {expected.data(), c.outputs}, {});
      EXPECT_EQ(y, expected);  // bit by bit
    }
  });
}

TEST(Linear, MultipliesBfloat16WhereTheCpuDoes) {
  if (!has_bfloat16_products()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  for (const LinearCase& c : kCases) {
    Inputs in(c);
    const std::int64_t stride = c.inputs + c.inputs % 2;
    std::vector<std::uint16_t> x(static_cast<std::size_t>(c.rows * stride));
    round_to_bfloat16(c.rows, c.inputs, {in.x.data(), c.inputs}, {x.data(), stride});
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t i = 0; i < c.inputs; ++i) {
        const float exact = in.x[r * c.inputs + i];
        float& rounded = in.x[r * c.inputs + i];
        rounded = std::bit_cast<float>(std::uint32_t{x[r * stride + i]} << 16);
        EXPECT_LE(std::abs(rounded - exact), std::abs(exact) / 256);
      }
    }
    std::vector<std::uint16_t> weights(in.weights.size() + 1);
    const auto count = static_cast<std::int64_t>(in.weights.size());
    round_to_bfloat16(1, count, {in.weights.data(), count}, {weights.data(), count + count % 2});
    for (std::size_t i = 0; i < in.weights.size(); ++i) {
      in.weights[i] = std::bit_cast<float>(std::uint32_t{weights[i]} << 16);
    }
    const PackedWeights packed(weights.data(), DType::bfloat16, c.outputs, c.inputs);
    expect_as_exact_as_plain(c, in, packed, ConstRows16{x.data(), stride});
  }
}

TEST(Linear, GivesARowTheSameWhereverItStands) {
  for_each_target([] {
    const LinearCase c{29, 70, 90};
    const Inputs in(c);
    const PackedWeights packed(in.weights.data(), DType::float32, c.outputs, c.inputs);
    std::vector<float> all(static_cast<std::size_t>(c.rows * c.outputs));
    linear(packed, c.rows, {in.x.data(), c.inputs}, {all.data(), c.outputs}, {});
    for (std::int64_t r = 0; r < c.rows; ++r) {
      std::vector<float> one(static_cast<std::size_t>(c.outputs));
      linear(packed, 1, {in.x.data() + r * c.inputs, c.inputs}, {one.data(), c.outputs}, {});
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + r * c.outputs)) << r;
    }
  });
}

TEST(Linear, ComputesTheExactGelu) {
  for_each_target([] {
    const float one = 1.0F;
    const PackedWeights identity(&one, DType::float32, 1, 1);
    double fused = 0, plain = 0;
    for (float x = -12.0F; x < 12.0F; x += 0.001F) {
      float y = 0;
      linear(identity, 1, {&x, 1}, {&y, 1}, {.activation = Activation::gelu});
      const double exact = gelu(static_cast<double>(x)), size = 1 + std::abs(exact);
      fused = std::max(fused, std::abs(y - exact) / size);
      plain = std::max(plain, std::abs(gelu(x) - exact) / size);
    }
    EXPECT_LE(fused, 2 * plain);
    for (const float far : {-1e30F, 1e30F}) {
      float y = 1;
      linear(identity, 1, {&far, 1}, {&y, 1}, {.activation = Activation::gelu});
      EXPECT_NEAR(y, far < 0 ? 0.0F : far, 1e-30F);
    }
  });
}

template <typename Number>
std::vector<Number> plain_norm(std::int64_t rows, std::int64_t width, const std::vector<float>& x,
                               const std::vector<float>& weight, const std::vector<float>& bias) {
  std::vector<Number> y;
  for (std::int64_t r = 0; r < rows; ++r) {
    Number mean = 0, variance = 0;
    for (std::int64_t c = 0; c < width; ++c) mean += static_cast<Number>(x[r * width + c]);
    mean /= static_cast<Number>(width);
    for (std::int64_t c = 0; c < width; ++c) {
      const Number away = static_cast<Number>(x[r * width + c]) - mean;
      variance += away * away;
    }
    variance /= static_cast<Number>(width);
    for (std::int64_t c = 0; c < width; ++c) {
      y.push_back((static_cast<Number>(x[r * width + c]) - mean) /
                      std::sqrt(variance + static_cast<Number>(1e-6F)) *
                      static_cast<Number>(weight[c]) +
                  static_cast<Number>(bias[c]));
    }
  }
  return y;
}

TEST(LayerNorm, FollowsTheFormula) {
  for_each_target([] {
    for (const std::int64_t width : {1, 7, 16, 35, 192, 200}) {
      const std::int64_t rows = 5;
      std::vector<float> x = random_numbers(rows * width, 1);
      for (float& number : x) number += 30.0F;  // a mean far from 0
      const auto weight = random_numbers(width, 2), bias = random_numbers(width, 3);
      const auto more = random_numbers(rows * width, 4);
      auto exact = plain_norm<double>(rows, width, x, weight, bias);
      const auto plain = plain_norm<float>(rows, width, x, weight, bias);
      const double allowed = 2 * largest_difference(plain, exact) + 1e-6;
      std::vector<float> y(x.size());
      layer_norm({weight.data(), bias.data()}, rows, width, {x.data(), width}, {y.data(), width});
      EXPECT_LE(largest_difference(y, exact), allowed) << width;
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += more[i];
      layer_norm({weight.data(), bias.data()}, rows, width, {x.data(), width}, {x.data(), width},
                 {more.data(), width});
      EXPECT_LE(largest_difference(x, exact), allowed + 1e-6) << width;
    }
  });
}

TEST(RotatePairs, TurnsAdjacentChannels) {
  for_each_target([] {
    const std::int64_t rows = 3, width = 22, stride = 30;
    std::vector<float> x = random_numbers(rows * stride, 1);
    const std::vector<float> before = x, turns = random_numbers(rows * width, 2);
    rotate_pairs(rows, width, {x.data(), stride}, {turns.data(), width});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < stride; c += 2) {
        const auto at = static_cast<std::size_t>(r * stride + c);
        const bool turned = c < width;
        const float cosine = turned ? turns[r * width + c] : 1.0F;
        const float sine = turned ? turns[r * width + c + 1] : 0.0F;
        EXPECT_NEAR(x[at], before[at] * cosine - before[at + 1] * sine, 1e-5);
        EXPECT_NEAR(x[at + 1], before[at] * sine + before[at + 1] * cosine, 1e-5);
      }
    }
  });
}

TEST(Linear, RefusesWhatMakesNoSense) {
  const float one = 1.0F;
  float y = 0;
  EXPECT_THROW(PackedWeights(nullptr, DType::float32, 1, 1), Error);
  EXPECT_THROW(PackedWeights(&one, DType::float16, 1, 1), Error);
  EXPECT_THROW(PackedWeights(&one, DType::float32, 0, 1), Error);
  const PackedWeights packed(&one, DType::float32, 1, 1);
  EXPECT_THROW(linear(packed, 1, ConstRows{nullptr, 1}, {&y, 1}, {}), Error);
  EXPECT_THROW(linear(packed, 1, ConstRows{&one, 0}, {&y, 1}, {}), Error);
  EXPECT_THROW(linear({}, 1, ConstRows{&one, 1}, {&y, 1}, {}), Error);
  EXPECT_THROW(rotate_pairs(1, 3, {&y, 3}, {&one, 3}), Error);
}

}  // namespace
}  // namespace sape2::kernels
