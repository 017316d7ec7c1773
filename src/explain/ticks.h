#pragma once

#include <string>
#include <vector>

namespace sape2::explain {

/// Round numbers from `low` to `high`, a step of 1, 2 or 5 times a power of ten apart: at least
/// two, and about `count` of them.
std::vector<double> round_ticks(double low, double high, int count);

/// A tick as text, with no more digits than its step needs.
std::string tick_text(double value, double step);

}  // namespace sape2::explain
