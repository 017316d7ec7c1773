#pragma once

#include <algorithm>
#include <cmath>

namespace sape2::base {

/// The distance of an axis's ticks: 1, 2, 5 or 10 times a power of ten, so that about `count` of
/// them fit into `width`, which is positive and finite.
inline double round_step(double width, int count) {
  const double rough = width / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (rough <= step * power * 1.001) return step * power;  // a rounding error asks for no more
  }
  return 10 * power;
}

}  // namespace sape2::base
