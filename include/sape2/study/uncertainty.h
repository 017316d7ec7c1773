#pragma once

#include <cstdint>
#include <optional>
#include <vector>

/// How far measured shares and means can be trusted. All intervals are of 95 %.
namespace sape2::study {

struct Interval {
  double low = 0;
  double high = 0;

  bool holds(double value) const { return low <= value && value <= high; }
};

/// 97.5 % of Student's t distribution lie below this value: the factor of a 95 % interval.
double student_quantile(std::int64_t degrees_of_freedom);

/// Wilson's interval of a share found on so many images: where the share of all images of the kind
/// lies. It stays inside 0 … 1, and holds for shares near 1 and few images too.
Interval share_interval(double share, std::int64_t images);

/// What two shares have to differ by to differ at all, each found on so many images. The images are
/// taken as two samples; on the same images less would do, so this errs on the careful side.
double share_margin(double one, double other, std::int64_t images);

/// What the means of two groups have to differ by, from the spread inside all groups together
/// (Student's t with a pooled deviation). Infinity if no group has two values: one run of each
/// tells nothing of how much runs vary.
double mean_margin(const std::vector<std::vector<double>>& groups, std::size_t one,
                   std::size_t other);

/// A difference, and where the true one lies.
struct Difference {
  double mean = 0;
  std::optional<Interval> interval;  ///< nothing if too little was measured for one

  /// Whether chance alone explains it, as far as can be told.
  bool may_be_zero() const { return !interval || interval->holds(0); }
};

/// The mean of differences found pair by pair, with the interval of the paired t test. One pair has
/// no interval.
Difference paired_difference(const std::vector<double>& differences);

/// The difference of two shares found on the same images, from how many images only the first got
/// right, only the second, and all of them (Agresti and Min, 2005).
Difference paired_share_difference(std::int64_t first_only, std::int64_t second_only,
                                   std::int64_t images);

}  // namespace sape2::study
