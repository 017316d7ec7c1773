#pragma once

namespace sape2::cli {

/// While it lives, the first Ctrl-C (SIGINT) or SIGTERM is a request to stop after the step at
/// hand; the second one ends the program as it otherwise would.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace sape2::cli
