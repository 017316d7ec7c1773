#include "cli/stop_signal.h"

#include <csignal>

namespace sape2::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void take_note(int) {
  stop_requested = 1;
}

void set_handler(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  set_handler(take_note, static_cast<int>(SA_RESETHAND | SA_RESTART));
}

StopSignal::~StopSignal() {
  set_handler(SIG_DFL, 0);
}

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace sape2::cli
