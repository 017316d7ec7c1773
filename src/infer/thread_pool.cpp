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
  // Threads that fetch each other's cache lines wait for them: what one thread writes and all read
  // lies together, what all write lies apart.
  static constexpr std::size_t kLine = 64;

  /// A thread's share of a call. Its owner takes from it, and whoever has none left of his own.
  struct alignas(kLine) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;

    /// Most of what is left: a few pieces are enough where others may be late. False: nothing is.
    bool take(std::int64_t& first, std::int64_t& last) {
      first = next.load(std::memory_order_relaxed);
      do {
        if (first >= end) return false;
        last = first + (2 * (end - first) + 2) / 3;
      } while (!next.compare_exchange_weak(first, last));
      return true;
    }
  };

  // The call that is being worked on. Helpers enter before they look whether it is open, and the
  // caller closes it before it looks whether somebody is inside: nobody touches a call that is
  // over.
  alignas(kLine) const Body* body = nullptr;
  std::atomic<bool> open{false};
  std::atomic<bool> ending{false};
  std::atomic<std::uint32_t> calls{0};  // changes with every call; helpers wait for that
  int threads = 1;
  std::unique_ptr<Share[]> shares;  // the caller's first
  alignas(kLine) std::atomic<int> inside{0};
  alignas(kLine) std::mutex busy;  // held by whoever has a call going

  std::mutex failure_mutex;
  std::exception_ptr failure;
  std::vector<std::thread> helpers;

  void deal_out(std::int64_t count) {
    for (int t = 0; t < threads; ++t) {
      shares[t].next.store(count / threads * t + std::min<std::int64_t>(t, count % threads));
      shares[t].end = count / threads * (t + 1) + std::min<std::int64_t>(t + 1, count % threads);
    }
  }

  // A thread has the same share of every call, so that what it left in its cache is there.
  void work(int thread) {
    try {
      for (int t = 0; t < threads; ++t) {
        Share& share = shares[(thread + t) % threads];
        std::int64_t first = 0, last = 0;
        while (share.take(first, last)) (*body)(first, last);
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      for (int t = 0; t < threads; ++t) shares[t].next.store(shares[t].end);
    }
  }

  void help(int thread) {
    std::uint32_t seen = 0;
    while (true) {
      for (int round = 0; calls.load() == seen && round < kRoundsBeforeSleep; ++round) {
        pause_briefly();
      }
      calls.wait(seen);
      seen = calls.load();
      if (ending.load()) return;
      inside.fetch_add(1);
      if (open.load()) work(thread);
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
  state_->shares = std::make_unique<State::Share[]>(static_cast<std::size_t>(wanted));
  try {
    for (int i = 1; i < wanted; ++i) {
      state_->helpers.emplace_back([state = state_.get(), i] { state->help(i); });
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
  state.deal_out(count);
  state.open.store(true);
  state.call();
  state.work(0);
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
