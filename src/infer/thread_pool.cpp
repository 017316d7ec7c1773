#include "sape2/infer/thread_pool.h"

#include "sape2/base/cpu.h"
#include "sape2/base/error.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sape2::infer {
namespace {

#if defined(__EMSCRIPTEN__) && !defined(__EMSCRIPTEN_PTHREADS__)
constexpr bool kHasThreads = false;
#else
constexpr bool kHasThreads = true;
#endif

constexpr int kMostThreads = 1024;

// A layer's steps follow each other within microseconds, a thread that sleeps wakes after tens of
// them: it waits for so many rounds before it sleeps.
constexpr int kRoundsBeforeSleep = 4000;

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int wanted_threads(int threads) {
  if (threads < 0 || threads > kMostThreads) {
    throw Error("threads is " + std::to_string(threads) + ", expected a number from 0 to " +
                std::to_string(kMostThreads));
  }
  if (!kHasThreads) return 1;
  return threads == 0 ? std::max(1, base::usable_cores()) : threads;
}

}  // namespace

struct ThreadPool::State {
  // The call that is being worked on. Helpers enter before they look whether it is open, and the
  // caller closes it before it looks whether somebody is inside: nobody touches a call that is
  // over.
  const Body* body = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> open{false};
  std::atomic<int> inside{0};

  std::atomic<std::uint32_t> calls{0};  // changes with every call; helpers wait for that
  std::atomic<bool> ending{false};
  std::mutex busy;  // held by whoever has a call going

  std::mutex failure_mutex;
  std::exception_ptr failure;

  int threads = 1;
  std::vector<std::thread> helpers;

  // Takes ranges until none are left: large ones first, so that each thread takes few.
  void work() {
    try {
      while (true) {
        std::int64_t begin = next.load(std::memory_order_relaxed), end = 0;
        do {
          if (begin >= count) return;
          end = begin + std::max<std::int64_t>(1, (count - begin) / (2 * threads));
          if (count <= 2 * threads) end = begin + std::max<std::int64_t>(1, count / threads);
          end = std::min(end, count);
        } while (!next.compare_exchange_weak(begin, end));
        (*body)(begin, end);
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next.store(count);
    }
  }

  void help() {
    std::uint32_t seen = 0;
    while (true) {
      for (int round = 0; calls.load() == seen && round < kRoundsBeforeSleep; ++round) {
        pause_briefly();
      }
      calls.wait(seen);
      seen = calls.load();
      if (ending.load()) return;
      inside.fetch_add(1);
      if (open.load()) work();
      inside.fetch_sub(1);
    }
  }

  void call() {
    calls.fetch_add(1);
    calls.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int wanted = wanted_threads(threads);
  try {
    for (int i = 1; i < wanted; ++i) {
      state_->helpers.emplace_back([state = state_.get()] { state->help(); });
    }
  } catch (const std::system_error&) {
    // No more threads to be had: those that are there do the work.
  }
  state_->threads = 1 + static_cast<int>(state_->helpers.size());
}

ThreadPool::~ThreadPool() {
  state_->ending.store(true);
  state_->call();
  for (std::thread& helper : state_->helpers) helper.join();
}

int ThreadPool::threads() const {
  return state_->threads;
}

void ThreadPool::parallel_for(std::int64_t count, const Body& body) const {
  State& state = *state_;
  std::unique_lock mine(state.busy, std::try_to_lock);
  if (count <= 1 || state.threads == 1 || !mine.owns_lock()) {
    if (count > 0) body(0, count);
    return;
  }
  state.body = &body;
  state.count = count;
  state.next.store(0);
  state.open.store(true);
  state.call();
  state.work();
  state.open.store(false);
  for (int round = 0; state.inside.load() != 0; ++round) {
    if (round < kRoundsBeforeSleep) {
      pause_briefly();
    } else {
      std::this_thread::yield();
    }
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace sape2::infer
