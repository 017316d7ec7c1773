#pragma once

#include "sape2/study/uncertainty.h"

#include <string>
#include <vector>

namespace sape2::study {

struct ForestRow {
  std::string label;
  std::string text;  ///< the figures in words
  Difference difference;
  std::string colour;  ///< a class of the style sheet (see line_class)
};

/// A forest plot as an SVG element: a row for each difference, a point at its mean, a line over its
/// interval, and an upright line at 0.
std::string svg_forest(const std::string& title, const std::string& x_name,
                       const std::vector<ForestRow>& rows);

}  // namespace sape2::study
