#include "sape2/base/instruction_trial.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>
#include <vector>

namespace sape2::base {
namespace {

bool illegal() {
#if defined(__x86_64__)
  __asm__ volatile("ud2");
#else
  __builtin_trap();
#endif
  return true;
}

bool raises_a_fault_of_protection() {
  ::raise(SIGSEGV);  // what LDTILECFG does with a palette that is not there
  return true;
}

struct sigaction handler_of(int signal) {
  struct sigaction handler {};
  ::sigaction(signal, nullptr, &handler);
  return handler;
}

TEST(InstructionTrial, SaysWhatTheTrialFinds) {
  EXPECT_TRUE(succeeds_here([] { return true; }));
  EXPECT_FALSE(succeeds_here([] { return false; }));
}

TEST(InstructionTrial, SurvivesInstructionsThatTheCpuLacks) {
  const auto before = handler_of(SIGILL).sa_handler;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(succeeds_here(illegal));
    EXPECT_FALSE(succeeds_here(raises_a_fault_of_protection));
  }
  EXPECT_EQ(handler_of(SIGILL).sa_handler, before);
}

TEST(InstructionTrial, SurvivesWhereTheSignalIsBlocked) {
  sigset_t ill, before, after;
  ::sigemptyset(&ill);
  ::sigaddset(&ill, SIGILL);
  ::pthread_sigmask(SIG_BLOCK, &ill, &before);
  EXPECT_FALSE(succeeds_here(illegal));
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_EQ(sigismember(&after, SIGILL), 1);  // as the caller had it
}

TEST(InstructionTrial, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < 50; ++n) {
        EXPECT_FALSE(succeeds_here(illegal));
        EXPECT_TRUE(succeeds_here([] { return true; }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(InstructionTrialDeathTest, LeavesOtherThreadsFaultsAlone) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto fault_elsewhere = [] {
    succeeds_here([] {
      std::thread(illegal).join();
      return true;
    });
  };
  EXPECT_EXIT(fault_elsewhere(), ::testing::KilledBySignal(SIGILL), "");
}

}  // namespace
}  // namespace sape2::base
