#include "draw/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sape2::draw {
namespace {

TEST(Ticks, AreRound) {
  const auto texts = [](double low, double high, int count) {
    std::string all;
    const auto ticks = round_ticks(low, high, count);
    for (const double tick : ticks) all += tick_text(tick, ticks[1] - ticks[0]) + " ";
    return all;
  };
  EXPECT_EQ(texts(0, 4.69, 5), "0 1 2 3 4 ");
  EXPECT_EQ(texts(-2.63, 2.63, 6), "−2 −1 0 1 2 ");
  EXPECT_EQ(texts(0, 0.231, 5), "0.00 0.05 0.10 0.15 0.20 ");
  EXPECT_EQ(texts(0, 1, 5), "0.0 0.2 0.4 0.6 0.8 1.0 ");
  EXPECT_EQ(texts(0, 310, 4), "0 100 200 300 ");
  EXPECT_EQ(round_ticks(2, 2, 5).size(), 1U);
}

TEST(Axis, HasRoundEndsOrItsOwn) {
  const Axis rounded = rounded_axis(0.13, 2.31, 5);
  EXPECT_DOUBLE_EQ(rounded.low, 0);
  EXPECT_DOUBLE_EQ(rounded.high, 2.5);
  EXPECT_EQ(rounded.ticks().size(), 6U);
  EXPECT_DOUBLE_EQ(rounded.place_of(1.25), 0.5);
  const Axis tight = tight_axis(1, 3, 5, /*least_step=*/1);
  EXPECT_EQ(tight.ticks(), (std::vector<double>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(tight.place_of(3), 1);
}

TEST(Axis, ShowsOneValueOrNone) {
  const Axis one = tight_axis(7, 7, 5);
  EXPECT_DOUBLE_EQ(one.place_of(7), 0.5);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Axis none = rounded_axis(kInfinity, -kInfinity, 5);
  EXPECT_DOUBLE_EQ(none.low, 0);
  EXPECT_DOUBLE_EQ(none.high, 1);
  EXPECT_TRUE(rounded_axis(0, kInfinity, 5).ticks().empty()) << "a loss that has run away";
}

// One more than 1e18 is 1e18: a step of one would lead nowhere, for ever.
TEST(Axis, OfHugeNumbersHasFewTicks) {
  for (const double value : {1e16, 1e18, -1e30, 1e300}) {
    for (const Axis& axis : {tight_axis(value, value, 5, /*least_step=*/1),
                             rounded_axis(value, value + std::abs(value) * 1e-15, 5)}) {
      EXPECT_FALSE(axis.ticks().empty()) << value;
      EXPECT_LT(axis.ticks().size(), 20U) << value;
      EXPECT_GT(axis.place_of(value), 0) << value;
      EXPECT_LT(axis.place_of(value), 1) << value;
    }
    EXPECT_EQ(round_ticks(value, value + std::abs(value) * 1e-15, 5).size(), 1U) << value;
  }
}

}  // namespace
}  // namespace sape2::draw
