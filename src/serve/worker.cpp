#include "serve/worker.h"

namespace sape2::serve {

Worker::Worker(std::size_t most_waiting)
    : most_waiting_(most_waiting), thread_([this] { loop(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= most_waiting_) {
      throw Busy("too many requests are waiting for the model; try again in a moment");
    }
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Worker::loop() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace sape2::serve
