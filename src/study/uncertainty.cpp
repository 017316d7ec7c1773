#include "sape2/study/uncertainty.h"

#include "sape2/study/comparison_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace sape2::study {
namespace {

constexpr double kNormal = 1.959964;  // 97.5 % of the normal distribution lie below

// The share of Student's distribution within ±t, where tan(angle) = t/√freedom: a finite sum for
// whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4), so that no library is needed.
double student_share_within(double angle, std::int64_t freedom) {
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1, sum = freedom == 1 ? 0 : term;
  for (std::int64_t i = odd ? 3 : 2; i < freedom; i += 2) {
    term *= cosine * cosine * static_cast<double>(i - 1) / static_cast<double>(i);
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
}

}  // namespace

double student_quantile(std::int64_t degrees_of_freedom) {
  constexpr double kShare = 0.95;
  constexpr int kHalvings = 60;  // below the spacing of doubles
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (student_share_within(middle, degrees_of_freedom) < kShare ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(degrees_of_freedom)) * std::tan((low + high) / 2);
}

Interval share_interval(double share, std::int64_t images) {
  if (images <= 0) return {0, 1};
  const auto n = static_cast<double>(images);
  const double z2 = kNormal * kNormal;
  const double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half =
      kNormal / (1 + z2 / n) * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

double share_margin(double one, double other, std::int64_t images) {
  if (images <= 0) return 1;
  return kNormal * std::sqrt((one * (1 - one) + other * (1 - other)) / static_cast<double>(images));
}

double mean_margin(const std::vector<std::vector<double>>& groups, std::size_t one,
                   std::size_t other) {
  double squares = 0;
  std::int64_t freedom = 0;
  for (const std::vector<double>& group : groups) {
    const auto deviation = spread_of(group).deviation;
    if (!deviation) continue;
    freedom += static_cast<std::int64_t>(group.size()) - 1;
    squares += *deviation * *deviation * static_cast<double>(group.size() - 1);
  }
  if (freedom == 0 || groups[one].empty() || groups[other].empty()) {
    return std::numeric_limits<double>::infinity();
  }
  const double pooled = squares / static_cast<double>(freedom);
  const double runs =
      1 / static_cast<double>(groups[one].size()) + 1 / static_cast<double>(groups[other].size());
  return student_quantile(freedom) * std::sqrt(pooled * runs);
}

Difference paired_difference(const std::vector<double>& differences) {
  const Spread spread = spread_of(differences);
  if (!spread.deviation) return {spread.mean, std::nullopt};
  const auto pairs = static_cast<std::int64_t>(differences.size());
  const double half =
      student_quantile(pairs - 1) * *spread.deviation / std::sqrt(static_cast<double>(pairs));
  return {spread.mean, Interval{spread.mean - half, spread.mean + half}};
}

Difference paired_share_difference(std::int64_t first_only, std::int64_t second_only,
                                   std::int64_t images) {
  if (images <= 0) return {};
  const auto one = static_cast<double>(first_only), other = static_cast<double>(second_only);
  const double mean = (one - other) / static_cast<double>(images);
  // Half an image more in each of the four cells: the plain interval is too narrow for few images.
  const double n = static_cast<double>(images) + 2, middle = (one - other) / n;
  const double half = kNormal * std::sqrt((one + other + 1) / n - middle * middle) / std::sqrt(n);
  return {mean, Interval{middle - half, middle + half}};
}

}  // namespace sape2::study
