#include "explain/ticks.h"

#include "sape2/base/round_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::explain {

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low)) return {low};
  const double step = base::round_step(high - low, count);
  const double tolerance = 1e-9 * (high - low) / step;
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - tolerance); i <= high / step + tolerance; ++i) {
    ticks.push_back(i * step);
  }
  return ticks;
}

std::string tick_text(double value, double step) {
  const int decimals =
      step > 0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9) : 2;
  const double shown = std::abs(value) < step * 1e-6 ? 0 : value;
  return fmt::format("{}{:.{}f}", shown < 0 ? "−" : "", std::abs(shown), decimals);
}

}  // namespace sape2::explain
