#include "sape2/data/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace sape2::data {
namespace {

// Known answers published with the Random123 library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Draws, DependOnEachPartOfTheirNameAndOnNothingElse) {
  const auto first = [](std::uint64_t seed, std::uint64_t epoch, std::uint64_t index,
                        Purpose purpose) { return Draws(seed, epoch, index, purpose).next(); };
  const std::uint32_t value = first(1, 2, 3, Purpose::crop);
  EXPECT_EQ(value, first(1, 2, 3, Purpose::crop));
  EXPECT_NE(value, first(2, 2, 3, Purpose::crop));
  EXPECT_NE(value, first(1 + (1ull << 32), 2, 3, Purpose::crop));
  EXPECT_NE(value, first(1, 3, 3, Purpose::crop));
  EXPECT_NE(value, first(1, 2, 4, Purpose::crop));
  EXPECT_NE(value, first(1, 2, 3 + (1ull << 32), Purpose::crop));
  EXPECT_NE(value, first(1, 2, 3, Purpose::flip));
}

TEST(Draws, BetweenReachesBothEndsEvenly) {
  Draws draws(7, 0, 0, Purpose::crop);
  std::vector<int> counts(9, 0);
  for (int i = 0; i < 9000; ++i) ++counts.at(draws.between(-4, 4) + 4);
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 850);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 1150);
}

TEST(Draws, UniformFillsTheUnitInterval) {
  Draws draws(7, 0, 0, Purpose::mix);
  double sum = 0, smallest = 1, largest = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = draws.uniform();
    sum += value;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
  EXPECT_GE(smallest, 0);
  EXPECT_LT(largest, 1);
  EXPECT_LT(smallest, 0.002);
  EXPECT_GT(largest, 0.998);
}

// Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)).
TEST(Draws, BetaHasItsMeanAndVariance) {
  for (const double alpha : {0.2, 0.8, 1.0, 3.0}) {
    Draws draws(11, 0, 0, Purpose::mix);
    double sum = 0, squares = 0;
    constexpr int kCount = 40000;
    for (int i = 0; i < kCount; ++i) {
      const double value = draws.beta(alpha);
      ASSERT_GE(value, 0);
      ASSERT_LE(value, 1);
      sum += value;
      squares += value * value;
    }
    const double mean = sum / kCount;
    EXPECT_NEAR(mean, 0.5, 0.01) << alpha;
    EXPECT_NEAR(squares / kCount - mean * mean, 1 / (4 * (2 * alpha + 1)), 0.003) << alpha;
  }
}

TEST(Shuffled, IsAPermutationThatDependsOnTheDraws) {
  const auto order = shuffled(1000, Draws(1, 0, 0, Purpose::order));
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(order.begin(), order.end()), 999);
  EXPECT_EQ(order, shuffled(1000, Draws(1, 0, 0, Purpose::order)));
  EXPECT_NE(order, shuffled(1000, Draws(1, 1, 0, Purpose::order)));
  std::int64_t in_place = 0;
  for (std::int64_t i = 0; i < 1000; ++i) in_place += order[i] == i;
  EXPECT_LT(in_place, 10);
}

}  // namespace
}  // namespace sape2::data
