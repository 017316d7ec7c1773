#pragma once

#include <string>
#include <vector>

namespace sape2::draw {

/// What an axis shows, and its ticks: multiples of `step`.
struct Axis {
  double low = 0, high = 1, step = 1;

  /// Where a value lies, 0 … 1.
  double place_of(double value) const { return (value - low) / (high - low); }

  std::vector<double> ticks() const;
};

/// An axis of these values with about `count` ticks at round numbers: 1, 2 or 5 times a power of
/// ten apart, and at least `least_step`. A single value gets ½ on either side; no values (`least`
/// above `most`) give 0 … 1.
Axis tight_axis(double least, double most, int count, double least_step = 0);

/// The same, widened to whole ticks.
Axis rounded_axis(double least, double most, int count);

/// Round numbers from `low` to `high`: at least two and about `count` of them, or `low` alone if
/// they are equal.
std::vector<double> round_ticks(double low, double high, int count);

/// A tick as text, with no more digits than its step needs.
std::string tick_text(double value, double step);

}  // namespace sape2::draw
