#include "sape2/study/uncertainty.h"

#include "sape2/study/comparison_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sape2::study {
namespace {

constexpr double kNormal = 1.959964;  // 97.5 % of the normal distribution lie below

// 97.5 % of Student's t distribution lie below, for 1, 2, … degrees of freedom.
double student_quantile(std::size_t freedom) {
  static constexpr std::array kValues{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                      2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                      2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  if (freedom <= kValues.size()) return kValues[freedom - 1];
  // Beyond the table, the first terms of its expansion are right to three digits.
  const auto n = static_cast<double>(freedom);
  return kNormal + (std::pow(kNormal, 3) + kNormal) / (4 * n);
}

}  // namespace

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
  std::size_t freedom = 0;
  for (const std::vector<double>& group : groups) {
    const auto deviation = spread_of(group).deviation;
    if (!deviation) continue;
    freedom += group.size() - 1;
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

}  // namespace sape2::study
