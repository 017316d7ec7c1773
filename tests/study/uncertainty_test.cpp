#include "sape2/study/uncertainty.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sape2::study {
namespace {

TEST(Uncertainty, IntervalsAreThoseOfTheTables) {
  // Wilson's interval for 81 of 263, a textbook example: 0.255 to 0.366.
  const Interval interval = share_interval(81.0 / 263, 263);
  EXPECT_NEAR(interval.low, 0.2553, 5e-4);
  EXPECT_NEAR(interval.high, 0.3662, 5e-4);
  // 8 of 10, where every term counts; all of 20: 1 / (1 + 1.96² / 20).
  EXPECT_NEAR(share_interval(0.8, 10).low, 0.49016, 1e-5);
  EXPECT_NEAR(share_interval(0.8, 10).high, 0.94332, 1e-5);
  EXPECT_NEAR(share_interval(1, 20).low, 0.83887, 1e-5);
  EXPECT_EQ(share_interval(1, 20).high, 1);
  EXPECT_EQ(share_interval(0, 20).low, 0);
  EXPECT_NEAR(share_margin(0.5, 0.5, 1000), 1.96 * std::sqrt(0.5 / 1000), 1e-5);
  // Deviations of √2 in both groups, two degrees of freedom: t = 4.303 times √2.
  EXPECT_NEAR(mean_margin({{1, 3}, {4, 6}}, 0, 1), 4.302653 * std::sqrt(2.0), 1e-6);
  EXPECT_TRUE(std::isinf(mean_margin({{1}, {4}}, 0, 1)));
}

// python3 -c 'from scipy import stats
// for n in (1, 2, 3, 4, 6, 9, 20, 21, 57, 1000): print(n, "%.12f" % stats.t.ppf(0.975, n))'
TEST(Uncertainty, StudentsQuantilesAreScipys) {
  const std::vector<std::pair<std::int64_t, double>> expected{
      {1, 12.706204736175}, {2, 4.302652729749},   {3, 3.182446305284},  {4, 2.776445105198},
      {6, 2.446911851145},  {9, 2.262157162798},   {20, 2.085963447266}, {21, 2.079613844728},
      {57, 2.002465459291}, {1000, 1.962339080826}};
  for (const auto& [freedom, quantile] : expected) {
    EXPECT_NEAR(student_quantile(freedom), quantile, 1e-9 * quantile) << freedom;
  }
}

// python3 -c 'from scipy import stats
// a = [88.10, 87.95, 88.40]; b = [87.80, 87.90, 88.55]
// print(stats.ttest_rel(a, b).confidence_interval(0.95))
// d = [0.07, 0.01, 0.65, 0.51, 0.23, 0.23, 0.27]
// print(stats.ttest_rel(d, [0] * 7).confidence_interval(0.95))'
TEST(Uncertainty, PairedIntervalsAreScipys) {
  const Difference few = paired_difference({88.10 - 87.80, 87.95 - 87.90, 88.40 - 88.55});
  ASSERT_TRUE(few.interval);
  EXPECT_NEAR(few.interval->low, -0.4934132014677291, 1e-9);
  EXPECT_NEAR(few.interval->high, 0.6267465348010643, 1e-9);
  EXPECT_TRUE(few.may_be_zero());

  const Difference gates = paired_difference({0.07, 0.01, 0.65, 0.51, 0.23, 0.23, 0.27});
  ASSERT_TRUE(gates.interval);
  EXPECT_NEAR(gates.mean, 0.2814285714, 1e-9);
  EXPECT_NEAR(gates.interval->low, 0.07056992199370302, 1e-9);
  EXPECT_NEAR(gates.interval->high, 0.4922872208634398, 1e-9);
  EXPECT_FALSE(gates.may_be_zero());
}

TEST(Uncertainty, OnePairHasNoIntervalAndEqualPairsHaveANarrowOne) {
  EXPECT_FALSE(paired_difference({0.5}).interval);
  EXPECT_TRUE(paired_difference({0.5}).may_be_zero());
  EXPECT_EQ(paired_difference({0.5}).mean, 0.5);
  EXPECT_EQ(paired_difference({1, 1, 1}).interval->low, 1);
  EXPECT_FALSE(paired_difference({1, 1, 1}).may_be_zero());
}

// Agresti and Min by hand: n = 102, (10 − 4) / 102 ± 1.96 √((15/102 − (6/102)²) / 102).
TEST(Uncertainty, SharesOnTheSameImagesArePaired) {
  const Difference difference = paired_share_difference(10, 4, 100);
  EXPECT_DOUBLE_EQ(difference.mean, 0.06);
  const double half = 1.959964 * std::sqrt((15.0 / 102 - std::pow(6.0 / 102, 2)) / 102);
  EXPECT_NEAR(difference.interval->low, 6.0 / 102 - half, 1e-12);
  EXPECT_NEAR(difference.interval->high, 6.0 / 102 + half, 1e-12);
  // No answer differs: 0, and not a certain 0.
  const Difference none = paired_share_difference(0, 0, 100);
  EXPECT_EQ(none.mean, 0);
  EXPECT_TRUE(none.may_be_zero());
  EXPECT_GT(none.interval->high, 0);
}

}  // namespace
}  // namespace sape2::study
