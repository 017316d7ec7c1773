#pragma once

#include <chrono>

namespace sape2::train {

/// Decides whether a checkpoint at the end of an epoch pays. Where epochs are short, one after each
/// would cost more than it could save: at most one part in a hundred of the time goes to them.
class CheckpointPace {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CheckpointPace(Clock::time_point start) : last_end_(start) {}

  bool pays(Clock::time_point now) const { return now - last_end_ >= 100 * last_cost_; }

  /// Training waited for a checkpoint from `begin` to `end`.
  void saved(Clock::time_point begin, Clock::time_point end) {
    last_end_ = end;
    last_cost_ = end - begin;
    all_ += last_cost_;
  }

  double seconds() const { return std::chrono::duration<double>(all_).count(); }

 private:
  Clock::time_point last_end_;
  Clock::duration last_cost_{}, all_{};
};

}  // namespace sape2::train
