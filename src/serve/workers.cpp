#include "serve/workers.h"

#include "sape2/base/interruption.h"

#include <algorithm>
#include <exception>
#include <latch>
#include <stop_token>

namespace sape2::serve {

struct Workers::Job {
  std::string key;
  Work work;
  std::stop_source stop;
  std::vector<Waiter*> waiters;
  bool started = false, done = false;
  std::shared_ptr<const Answer> answer;
  std::exception_ptr failure;
};

Workers::Workers(const Options& options) : options_(options) {
  std::latch prepared(static_cast<std::ptrdiff_t>(options_.threads));
  for (std::size_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([&] {
      if (options_.prepare) options_.prepare();
      prepared.count_down();
      loop();
    });
  }
  prepared.wait();
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const JobPointer& job : queue_) {
      job->failure = std::make_exception_ptr(Interrupted());
      finish(job);
    }
    queue_.clear();
    for (const JobPointer& job : running_) job->stop.request_stop();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::size_t Workers::pending() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + running_.size();
}

Workers::JobPointer Workers::join(const std::string& key, Work work, Waiter& waiter) {
  JobPointer job;
  {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const JobPointer& other) {
      return other->key == key && !other->stop.stop_requested();
    };
    if (!key.empty()) {
      const auto queued = std::ranges::find_if(queue_, same);
      const auto running = std::ranges::find_if(running_, same);
      if (queued != queue_.end()) job = *queued;
      if (running != running_.end()) job = *running;
    }
    if (job) {
      job->waiters.push_back(&waiter);
      return job;
    }
    if (queue_.size() >= options_.most_waiting) {
      throw Busy("too many requests are waiting for the model; try again in a moment");
    }
    job = std::make_shared<Job>();
    job->key = key;
    job->work = std::move(work);
    job->waiters = {&waiter};
    queue_.push_back(job);
  }
  changed_.notify_one();
  return job;
}

void Workers::leave(const JobPointer& job, Waiter& waiter) {
  std::erase(job->waiters, &waiter);
  if (!job->waiters.empty()) return;
  job->stop.request_stop();
  std::erase(queue_, job);
}

std::shared_ptr<const Answer> Workers::run(const std::string& key, Work work, Waiter& waiter) {
  const auto patience = Waiter::Clock::now() + options_.longest_wait;
  if (!waiter.wait(Waiter::Clock::time_point::min())) throw Interrupted();  // gone already
  const JobPointer job = join(key, std::move(work), waiter);
  bool started = false;
  for (;;) {
    const bool wanted = waiter.wait(started ? Waiter::Clock::time_point::max() : patience);
    const std::lock_guard lock(mutex_);
    if (job->done) break;
    started = job->started;
    const bool too_long = !started && Waiter::Clock::now() >= patience;
    if (wanted && !too_long) continue;
    leave(job, waiter);
    if (!wanted) throw Interrupted();
    throw Busy("the model is busy with other requests; try again in a moment");
  }
  if (job->failure) std::rethrow_exception(job->failure);
  return job->answer;
}

// Under the mutex.
void Workers::finish(const JobPointer& job) {
  job->done = true;
  for (Waiter* waiter : job->waiters) waiter->wake();
  job->waiters.clear();
}

void Workers::loop() {
  for (;;) {
    JobPointer job;
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
      if (ending_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      running_.push_back(job);
      job->started = true;
      work = std::move(job->work);
    }
    std::shared_ptr<const Answer> answer;
    std::exception_ptr failure;
    try {
      const Interruptible interruptible(job->stop.get_token());
      answer = std::make_shared<const Answer>(work());
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;  // what it holds goes now
    const std::lock_guard lock(mutex_);
    job->answer = std::move(answer);
    job->failure = std::move(failure);
    finish(job);
    running_.remove(job);
  }
}

}  // namespace sape2::serve
