#include "study/chart_range.h"

#include "sape2/base/round_step.h"

#include <algorithm>
#include <cmath>

namespace sape2::study {

void ChartRange::take_in(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

ChartRange ChartRange::rounded() const {
  ChartRange range = *this;
  if (!(range.low <= range.high)) range = {0, 1};
  if (range.high - range.low < 1e-9) range = {range.low - 0.5, range.high + 0.5};
  const double step = range.step();
  return {std::floor(range.low / step) * step, std::ceil(range.high / step) * step};
}

double ChartRange::step() const {
  return base::round_step(high - low, kChartTicks);
}

}  // namespace sape2::study
