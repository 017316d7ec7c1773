#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::train {

/// How good a model is by one measure, 0 … 1, larger is better.
struct FigureDefinition {
  std::string key;        ///< in logs and files: "mean_iou"
  std::string name;       ///< in tables: "mean IoU"
  bool compared = false;  ///< comparisons test its differences, as they do the main one's
};

struct Figure {
  std::string key;
  double value = 0;

  bool operator==(const Figure&) const = default;
};

/// What was measured, in the order of the task's definitions: the first says which model is best.
using Figures = std::vector<Figure>;

/// The figure of that key; 0 if there is none.
inline double figure_of(const Figures& figures, std::string_view key) {
  const auto found = std::ranges::find(figures, key, &Figure::key);
  return found == figures.end() ? 0 : found->value;
}

/// The first figure; 0 if there is none.
inline double main_figure(const Figures& figures) {
  return figures.empty() ? 0 : figures.front().value;
}

}  // namespace sape2::train
