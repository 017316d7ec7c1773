#pragma once

#include <csignal>

namespace sape2::cli {

/// While it lives, the first Ctrl-C (or SIGTERM) is only noted, so that work can be brought to a
/// good end; the second one ends the program as usual.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static bool requested();

 private:
  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
};

}  // namespace sape2::cli
