#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <type_traits>

namespace sape2::serve {

/// Too much is asked for at once; the client may try again.
class Busy : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The one thread that touches models, images and what is kept of them, so that none of these needs
/// a lock and LibTorch's threads exist once. Work waits in a queue of bounded length.
class Worker {
 public:
  explicit Worker(std::size_t most_waiting);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs `work` there and returns its result, or throws what it throws. Throws Busy where the
  /// queue is full.
  template <typename Work>
  std::invoke_result_t<Work> run(Work work) {
    using Result = std::invoke_result_t<Work>;
    const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
    std::future<Result> result = task->get_future();
    add([task] { (*task)(); });
    return result.get();
  }

 private:
  void add(std::function<void()> job);
  void loop();

  std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sape2::serve
