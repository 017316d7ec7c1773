#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

namespace sape2::cli {

inline double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// How long to measure: at least this many rounds, and until this much time has gone.
struct Patience {
  int rounds = 5;
  double milliseconds = 1500;
};

/// The least time of each piece of work. They take turns, so that a noisy moment hits all of them
/// and their ratios can be trusted more than the times themselves.
inline std::vector<double> least_milliseconds(const std::vector<std::function<void()>>& works,
                                              const Patience& patience) {
  std::vector<double> least(works.size(), std::numeric_limits<double>::infinity());
  for (const auto& work : works) work();  // warm up: threads, caches, memory
  double spent = 0;
  for (int round = 0; round < patience.rounds || spent < patience.milliseconds; ++round) {
    for (std::size_t index = 0; index < works.size(); ++index) {
      const double time = milliseconds_of(works[index]);
      least[index] = std::min(least[index], time);
      spent += time;
    }
  }
  return least;
}

}  // namespace sape2::cli
