#include "sape2/base/instruction_trial.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <mutex>

namespace sape2::base {
namespace {

constexpr std::array kFaults = {SIGILL, SIGSEGV};

// One trial at a time; a signal handler has no other way to know of it.
std::atomic<bool> trying = false;
pthread_t trying_thread;
sigjmp_buf way_back;
std::array<struct sigaction, kFaults.size()> handlers_before;

void on_fault(int signal, siginfo_t* info, void* context) {
  if (trying && ::pthread_equal(trying_thread, ::pthread_self())) ::siglongjmp(way_back, 1);
  const struct sigaction& before = handlers_before[signal == kFaults[0] ? 0 : 1];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    ::sigaction(signal, &before,
                nullptr);  // the instruction faults once more, and ends the process
  } else {
    before.sa_handler(signal);
  }
}

}  // namespace

bool succeeds_here(bool (*trial)()) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO;
  sigset_t faults, mask_before;
  ::sigemptyset(&faults);
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    ::sigaddset(&faults, kFaults[i]);
    ::sigaction(kFaults[i], &ours, &handlers_before[i]);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &faults, &mask_before);
  trying_thread = ::pthread_self();
  bool succeeded = false;
  if (::sigsetjmp(way_back, 1) == 0) {
    trying = true;
    succeeded = trial();
  }
  trying = false;
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    ::sigaction(kFaults[i], &handlers_before[i], nullptr);
  }
  return succeeded;
}

}  // namespace sape2::base
