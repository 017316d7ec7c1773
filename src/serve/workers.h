#pragma once

#include "serve/answer.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sape2::serve {

/// Too much is asked for at once; the client may try again.
class Busy : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Somebody who waits for an answer and may lose interest.
class Waiter {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Waiter() = default;

  /// Waits for wake(), but not beyond `deadline`. False: the answer is not wanted any more.
  virtual bool wait(Clock::time_point deadline) = 0;
  /// From another thread.
  virtual void wake() noexcept = 0;
};

/// Threads that compute answers, with a queue of bounded length before them. Work that nobody waits
/// for any more leaves the queue, or ends at its next interruption_point(). Whoever asks for the
/// same thing while it is being made shares it.
class Workers {
 public:
  using Work = std::function<Answer()>;

  struct Options {
    std::size_t threads = 1;
    std::size_t most_waiting = 256;
    std::chrono::milliseconds longest_wait{30'000};  ///< until work begins
    std::function<void()> prepare;                   ///< run first by each thread
  };

  /// Returns when all threads are prepared.
  explicit Workers(const Options& options);
  /// Gives up what waits and what runs.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// The answer that `work` returns, or what it throws. `key` names what is asked for, empty: not
  /// to be shared. Throws Busy where the queue is full or the wait too long, and Interrupted where
  /// the waiter has lost interest. `work` may outlive the call, so it owns what it uses.
  std::shared_ptr<const Answer> run(const std::string& key, Work work, Waiter& waiter);

  /// Work that waits or runs.
  std::size_t pending() const;

 private:
  struct Job;
  using JobPointer = std::shared_ptr<Job>;

  JobPointer join(const std::string& key, Work work, Waiter& waiter);
  void leave(const JobPointer& job, Waiter& waiter);
  void loop();
  void finish(const JobPointer& job);

  const Options options_;
  mutable std::mutex mutex_;  // of everything below, and of jobs
  std::condition_variable changed_;
  std::deque<JobPointer> queue_;
  std::list<JobPointer> running_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sape2::serve
