#pragma once

#include <exception>
#include <stop_token>
#include <utility>

namespace sape2 {

/// Work was given up because nobody wants its result any more. Nobody's mistake, so no Error.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "the work was given up"; }
};

namespace detail {
inline thread_local std::stop_token stop_of_this_thread;
}

/// While it lives, work of this thread ends at its next interruption_point() once `stop` asks for
/// it. Of the thread rather than an argument, so that long work deep in the library can be ended
/// without every function on the way knowing of it.
class Interruptible {
 public:
  explicit Interruptible(std::stop_token stop)
      : before_(std::exchange(detail::stop_of_this_thread, std::move(stop))) {}
  ~Interruptible() { detail::stop_of_this_thread = std::move(before_); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  std::stop_token before_;
};

/// Called between the steps of long work: throws Interrupted if the work is to end.
inline void interruption_point() {
  if (detail::stop_of_this_thread.stop_requested()) throw Interrupted();
}

}  // namespace sape2
