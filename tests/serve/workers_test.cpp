#include "serve/workers.h"

#include "sape2/base/interruption.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

namespace sape2::serve {
namespace {

// Waits like a client, and goes when told to.
class PatientWaiter : public Waiter {
 public:
  bool wait(Clock::time_point deadline) override {
    ++waits_;
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return woken_ || gone_; };
    if (deadline == Clock::time_point::max()) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_until(lock, deadline, ready);
    }
    woken_ = false;
    return !gone_;
  }
  void wake() noexcept override { set(woken_); }
  void go() { set(gone_); }
  /// Whether its job is among those of the workers: a request looks at its client once before.
  bool has_joined() const { return waits_ > 1; }

 private:
  void set(bool& what) noexcept {
    {
      const std::lock_guard lock(mutex_);
      what = true;
    }
    changed_.notify_all();
  }

  std::atomic<int> waits_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, gone_ = false;
};

Answer text(const std::string& body) {
  return {"text/plain", body};
}

// Work that begins, and goes on until it is given up or told to end.
struct LongWork {
  std::atomic<int> runs = 0;
  std::atomic<bool> end = false, interrupted = false;
  std::latch begun{1};

  Workers::Work work() {
    return [this] {
      if (++runs == 1) begun.count_down();
      try {
        while (!end) {
          interruption_point();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      } catch (const Interrupted&) {
        interrupted = true;
        throw;
      }
      return text("long");
    };
  }
};

TEST(Workers, AnswerAndPassErrorsOn) {
  Workers workers({.threads = 2});
  PatientWaiter waiter;
  EXPECT_EQ(workers
                .run(
                    "a", [] { return text("5"); }, waiter)
                ->body,
            "5");
  EXPECT_THROW(workers.run(
                   "b", []() -> Answer { throw std::runtime_error("no"); }, waiter),
               std::runtime_error);
  EXPECT_EQ(workers
                .run(
                    "", [] { return text("6"); }, waiter)
                ->body,
            "6");
}

TEST(Workers, RefuseWhatTheyHaveNoRoomFor) {
  Workers workers({.threads = 1, .most_waiting = 0});
  PatientWaiter waiter;
  EXPECT_THROW(workers.run(
                   "", [] { return text("1"); }, waiter),
               Busy);
}

TEST(Workers, DoNotBeginForAClientThatHasGone) {
  Workers workers({.threads = 1});
  PatientWaiter waiter;
  waiter.go();
  bool begun = false;
  EXPECT_THROW(workers.run(
                   "", [&] { return begun = true, text("1"); }, waiter),
               Interrupted);
  EXPECT_EQ(workers.pending(), 0U);
  EXPECT_FALSE(begun);
}

TEST(Workers, GiveUpWhatNobodyWaitsFor) {
  Workers workers({.threads = 1});
  LongWork running, queued;
  PatientWaiter first, second;
  std::thread one([&] { EXPECT_THROW(workers.run("1", running.work(), first), Interrupted); });
  running.begun.wait();
  std::thread two([&] { EXPECT_THROW(workers.run("2", queued.work(), second), Interrupted); });
  while (workers.pending() < 2) std::this_thread::yield();
  second.go();  // leaves the queue although the thread is busy
  two.join();
  EXPECT_EQ(workers.pending(), 1U);
  first.go();
  one.join();
  PatientWaiter third;  // the thread is free again
  EXPECT_EQ(workers
                .run(
                    "", [] { return text("free"); }, third)
                ->body,
            "free");
  EXPECT_TRUE(running.interrupted);
  EXPECT_EQ(queued.runs, 0);
}

TEST(Workers, ShareWhatIsAskedForTwice) {
  Workers workers({.threads = 2});
  LongWork work;
  std::vector<PatientWaiter> waiters(3);
  std::vector<std::thread> askers;
  std::atomic<int> answered = 0;
  std::atomic<bool> given_up = false;
  const auto ask = [&](std::size_t i) {
    askers.emplace_back([&, i] {
      try {
        if (workers.run("same", work.work(), waiters[i])->body == "long") ++answered;
      } catch (const Interrupted&) {
        given_up = true;
      }
    });
  };
  ask(0);
  work.begun.wait();
  ask(1);
  ask(2);
  while (!waiters[1].has_joined() || !waiters[2].has_joined()) std::this_thread::yield();
  waiters[0].go();  // the others still want it
  while (!given_up) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  work.end = true;
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(answered, 2);
  EXPECT_FALSE(work.interrupted);
}

TEST(Workers, NobodyWaitsForever) {
  Workers workers({.threads = 1, .longest_wait = std::chrono::milliseconds(50)});
  LongWork work;
  PatientWaiter first, second;
  std::thread one([&] { workers.run("1", work.work(), first); });
  work.begun.wait();
  EXPECT_THROW(workers.run(
                   "2", [] { return text("2"); }, second),
               Busy);
  work.end = true;  // what has begun may take its time
  one.join();
}

TEST(Workers, EndAtOnce) {
  LongWork work;
  PatientWaiter first, second;
  std::vector<std::thread> askers;
  {
    Workers workers({.threads = 1});
    askers.emplace_back([&] { EXPECT_THROW(workers.run("1", work.work(), first), Interrupted); });
    work.begun.wait();
    askers.emplace_back([&] { EXPECT_THROW(workers.run("2", work.work(), second), Interrupted); });
    while (workers.pending() < 2) std::this_thread::yield();
    // Who waits has left before the workers end, as connections have; the second first, because the
    // worker would begin its work as soon as it is free.
    second.go();
    askers[1].join();
    first.go();
    askers[0].join();
  }
  EXPECT_EQ(work.runs, 1);
}

}  // namespace
}  // namespace sape2::serve
