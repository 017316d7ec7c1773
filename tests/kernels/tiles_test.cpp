#include "kernels/cpu/linear/amx.h"
#include "kernels/cpu/linear/bfloat16.h"
#include "kernels/emulated_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

// The kernel for AMX: in software on every CPU, by the instructions where the CPU has them.
namespace sape2::kernels {
namespace {

using testing::EmulatedTiles;
using Words = std::vector<std::uint16_t>;

std::uint16_t bfloat16_of(float number) {  // to the nearest, ties to even
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float float_of(std::uint16_t upper) {
  return std::bit_cast<float>(std::uint32_t{upper} << 16);
}

/// One tile of sums: sum + left · right, where left has one row, right one output.
float product_of(std::vector<float> left, std::vector<float> right, float sum) {
  TileConfig config;
  const auto pairs = static_cast<std::uint8_t>(left.size() / 2);
  config.rows[0] = config.rows[1] = 1;
  config.rows[2] = pairs;
  config.row_bytes[0] = config.row_bytes[2] = 4;
  config.row_bytes[1] = static_cast<std::uint16_t>(4 * pairs);
  Words left_words, right_words;
  for (const float number : left) left_words.push_back(bfloat16_of(number));
  for (const float number : right) right_words.push_back(bfloat16_of(number));
  EmulatedTiles tiles;
  tiles.configure(config);
  tiles.load<0>(&sum, 4);
  tiles.load<1>(left_words.data(), 4 * pairs);
  tiles.load<2>(right_words.data(), 4);
  tiles.multiply<0, 1, 2>();
  tiles.store<0>(&sum, 4);
  return sum;
}

TEST(EmulatedTiles, SumEvenAndOddPairsApart) {
  const float big = std::ldexp(1.0F, 24);
  // In order, big + 1 − big is 0: 1 is lost. Evens and odds apart: (big − big) + (1 + 0).
  EXPECT_EQ(product_of({1, 1, 1, 1}, {big, 1, -big, 0}, 0), 1.0F);
  // The products are added up before the sum that was there: 1 and −1 cancel first.
  EXPECT_EQ(product_of({1, 1}, {1, -1}, big), big);
  EXPECT_EQ(product_of({1, 1}, {1, 2}, big), big + 4);  // 3 lies half-way: to even
  EXPECT_EQ(product_of({1, 1}, {1, 0}, big), big);      // as does 1
}

TEST(EmulatedTiles, FuseProductsAndSums) {
  // (1 + 2^-7)² = 1 + 2^-6 + 2^-14, which −1 leaves whole.
  const float x = 1 + std::ldexp(1.0F, -7);
  EXPECT_EQ(product_of({1, 0, x, 0}, {-1, 0, x, 0}, 0),
            std::ldexp(1.0F, -6) + std::ldexp(1.0F, -14));
}

TEST(EmulatedTiles, KnowNoDenormals) {
  const float tiny = std::ldexp(1.0F, -130), small = std::ldexp(1.0F, -70);
  EXPECT_EQ(product_of({tiny, 0}, {std::ldexp(1.0F, 100), 0}, 0), 0.0F);
  EXPECT_EQ(product_of({small, 0}, {small, 0}, 0), 0.0F);
  EXPECT_EQ(product_of({0, 0}, {0, 0}, tiny), 0.0F);
  EXPECT_EQ(product_of({1, 0}, {FLT_MIN, 0}, 0), FLT_MIN);
}

TEST(EmulatedTiles, CarryWhatIsNotFinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(product_of({infinite, 0}, {1, 0}, 0), infinite);
  EXPECT_TRUE(std::isnan(product_of({infinite, 0}, {0, 0}, 0)));
}

TEST(EmulatedTiles, RefuseWhatTheCpuRefuses) {
  const auto configure = [](const std::function<void(TileConfig&)>& change) {
    TileConfig config;
    change(config);
    EmulatedTiles().configure(config);
  };
  EXPECT_NO_THROW(configure([](TileConfig&) {}));
  EXPECT_THROW(configure([](TileConfig& c) { c.palette = 0; }), std::logic_error);
  EXPECT_THROW(configure([](TileConfig& c) { c.reserved[3] = 1; }), std::logic_error);
  EXPECT_THROW(configure([](TileConfig& c) { c.rows[1] = 17, c.row_bytes[1] = 64; }),
               std::logic_error);
  EXPECT_THROW(configure([](TileConfig& c) { c.rows[1] = 16; }), std::logic_error);
  EXPECT_THROW(configure([](TileConfig& c) { c.rows[8] = c.row_bytes[8] = 4; }), std::logic_error);
  EXPECT_THROW(EmulatedTiles().zero<0>(), std::logic_error);
}

struct Case {
  std::int64_t rows, inputs, outputs;
};

// Every edge of a tile, one tile and two of rows, one panel and two, odd numbers of inputs.
const std::vector<Case> kCases{{1, 1, 1},    {1, 192, 10}, {2, 5, 16},   {15, 32, 17},
                               {16, 33, 32}, {17, 48, 47}, {31, 64, 33}, {33, 31, 79},
                               {50, 63, 48}, {64, 192, 96}};

/// A layer in bfloat16, with everything that an epilogue has.
struct Layer {
  explicit Layer(const Case& c)
      : size(c), stride(c.inputs + c.inputs % 2 + 6), y_stride(c.outputs + 3) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& numbers, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) numbers.push_back(normal(generator));
    };
    const auto nan = bfloat16_of(std::numeric_limits<float>::quiet_NaN());
    x.assign(static_cast<std::size_t>(c.rows * stride), nan);  // beyond a row: not to be read
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t i = 0; i < c.inputs; ++i)
        x[r * stride + i] = bfloat16_of(normal(generator));
      if (c.inputs % 2) x[r * stride + c.inputs] = 0;
    }
    for (std::int64_t i = 0; i < c.outputs * c.inputs; ++i) {
      weights.push_back(bfloat16_of(normal(generator)));
    }
    fill(bias, c.outputs);
    fill(factor, c.outputs);
    fill(added, c.rows * y_stride);
    packed = PackedWeights(weights.data(), DType::bfloat16, c.outputs, c.inputs);
  }

  template <typename Multiply>
  std::vector<float> run(const Multiply& multiply) const {
    std::vector<float> y = added;  // what is added may be the output
    multiply(packed, size.rows, ConstRows16{x.data(), stride}, Rows{y.data(), y_stride},
             LinearEpilogue{.bias = bias.data(),
                            .activation = Activation::gelu,
                            .factor = factor.data(),
                            .added = y.data(),
                            .added_stride = y_stride});
    return y;
  }

  template <typename Number>
  std::vector<Number> formula() const {
    std::vector<Number> y(added.begin(), added.end());
    for (std::int64_t r = 0; r < size.rows; ++r) {
      for (std::int64_t o = 0; o < size.outputs; ++o) {
        Number sum = 0;
        for (std::int64_t i = 0; i < size.inputs; ++i) {
          sum += static_cast<Number>(float_of(x[r * stride + i])) *
                 static_cast<Number>(float_of(weights[o * size.inputs + i]));
        }
        sum += static_cast<Number>(bias[o]);
        sum = sum / 2 * (1 + std::erf(sum / std::sqrt(Number{2})));
        y[r * y_stride + o] += sum * static_cast<Number>(factor[o]);
      }
    }
    return y;
  }

  Case size;
  std::int64_t stride, y_stride;
  Words x, weights;
  std::vector<float> bias, factor, added;
  PackedWeights packed;
};

constexpr auto kEmulated = [](const auto&... arguments) {
  EmulatedTiles tiles;
  linear_tile_rows(tiles, arguments...);
  EXPECT_FALSE(tiles.is_configured());  // the CPU would carry the registers along
};

template <typename Some>
double error(const Some& some, const std::vector<double>& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = std::abs(static_cast<double>(some[i]) - exact[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

TEST(LinearTiles, FollowTheFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " " + std::to_string(c.inputs) + " " +
                 std::to_string(c.outputs));
    const Layer layer(c);
    const auto exact = layer.formula<double>();
    EXPECT_LE(error(layer.run(kEmulated), exact), 2 * error(layer.formula<float>(), exact) + 1e-6);
  }
}

TEST(LinearTiles, GiveARowTheSameWhereverItStands) {
  const Layer layer({37, 70, 90});
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    std::vector<float> y(static_cast<std::size_t>(count * 90));
    kEmulated(layer.packed, count, ConstRows16{layer.x.data() + first * layer.stride, layer.stride},
              Rows{y.data(), 90}, LinearEpilogue{});
    return y;
  };
  const std::vector<float> all = rows(0, 37);
  for (std::int64_t r = 0; r < 37; ++r) {
    const std::vector<float> one = rows(r, 1);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + r * 90)) << r;
  }
}

TEST(LinearTiles, AgreeWithVectorsOfBfloat16) {
  if (!cpu_multiplies_bfloat16()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  for (const Case& c : kCases) {
    const Layer layer(c);
    const auto tiles = layer.run(kEmulated), vectors = layer.run(linear_bfloat16_rows);
    for (std::size_t i = 0; i < tiles.size(); ++i) ASSERT_NEAR(tiles[i], vectors[i], 1e-4);
  }
}

TEST(LinearTiles, AreTheInstructionsBitByBit) {
  if (!cpu_multiplies_tiles()) GTEST_SKIP() << "this CPU has no AMX";
  for (const Case& c : kCases) {
    const Layer layer(c);
    EXPECT_EQ(layer.run(linear_amx_rows), layer.run(kEmulated));
  }
}

}  // namespace
}  // namespace sape2::kernels
