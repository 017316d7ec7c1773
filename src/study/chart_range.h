#pragma once

#include <limits>

namespace sape2::study {

/// About so many ticks on an axis.
inline constexpr int kChartTicks = 5;

/// What the values of a chart span.
struct ChartRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take_in(double value);

  /// Widened to whole ticks; of no value, or of one alone, something to draw all the same.
  ChartRange rounded() const;

  /// The distance of two ticks.
  double step() const;
};

}  // namespace sape2::study
