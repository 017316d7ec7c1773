#pragma once

#include "sape2/study/comparison.h"

#include <string>
#include <vector>

namespace sape2::study {

/// A comparison and the name of the file it was read from.
struct NamedComparison {
  std::string name;
  Comparison comparison;
};

/// One comparison of several that were trained apart, on one machine or on many: all their rows, in
/// the order in which they first stand, with all their runs. The same run in two of them counts
/// once. Throws Error with one sentence if two do not belong together (other data, model or recipe,
/// another tuning or another choice of it) or have different figures for the same run.
Comparison merge_comparisons(const std::vector<NamedComparison>& parts);

}  // namespace sape2::study
