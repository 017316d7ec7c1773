#include "draw/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::draw {
namespace {

// 1, 2, 5 or 10 times a power of ten, so that about `count` of them fit into `width`, which is
// positive and finite.
double round_step(double width, int count) {
  const double rough = width / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (rough <= step * power * 1.001) return step * power;  // a rounding error asks for no more
  }
  return 10 * power;
}

// Whether steps would be lost in the rounding of numbers of this size, and lead nowhere.
bool is_too_narrow(double low, double high) {
  return high - low < 1e-9 * std::max(std::abs(low), std::abs(high));
}

}  // namespace

std::vector<double> Axis::ticks() const {
  const double tolerance = 1e-9 * (high - low) / step;
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - tolerance); i <= high / step + tolerance; ++i) {
    ticks.push_back(i * step);
  }
  return ticks;
}

Axis tight_axis(double least, double most, int count, double least_step) {
  Axis axis{least, most};
  if (!(least <= most)) axis = {0, 1};
  const double size = std::max(std::abs(axis.low), std::abs(axis.high));
  if (axis.high - axis.low < 1e-9 || is_too_narrow(axis.low, axis.high)) {
    const double half = std::max(0.5, 1e-3 * size);
    axis = {axis.low - half, axis.high + half};
  }
  axis.step = std::max(least_step, round_step(axis.high - axis.low, count));
  return axis;
}

Axis rounded_axis(double least, double most, int count) {
  Axis axis = tight_axis(least, most, count);
  axis.low = std::floor(axis.low / axis.step) * axis.step;
  axis.high = std::ceil(axis.high / axis.step) * axis.step;
  return axis;
}

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low) || is_too_narrow(low, high)) return {low};
  return Axis{low, high, round_step(high - low, count)}.ticks();
}

std::string tick_text(double value, double step) {
  const int decimals =
      step > 0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9) : 2;
  const double shown = std::abs(value) < step * 1e-6 ? 0 : value;
  return fmt::format("{}{:.{}f}", shown < 0 ? "−" : "", std::abs(shown), decimals);
}

}  // namespace sape2::draw
