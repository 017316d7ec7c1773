#pragma once

#include <functional>
#include <future>

namespace sape2::train {

/// One piece of work at a time beside the caller's own.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  ~BackgroundJob() {
    if (running_.valid()) running_.wait();
  }
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Waits for the work before, then begins.
  void start(std::function<void()> work) {
    finish();
    running_ = std::async(std::launch::async, std::move(work));
  }

  /// Waits, and throws what the work threw.
  void finish() {
    if (running_.valid()) running_.get();
  }

 private:
  std::future<void> running_;
};

}  // namespace sape2::train
