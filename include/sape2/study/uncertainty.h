#pragma once

#include <cstdint>
#include <vector>

/// How far measured shares and means can be trusted. All intervals are of 95 %.
namespace sape2::study {

struct Interval {
  double low = 0;
  double high = 0;
};

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

}  // namespace sape2::study
