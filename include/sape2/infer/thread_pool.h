#pragma once

#include "sape2/kernels/executor.h"

#include <memory>

namespace sape2::infer {

/// Threads that share the work of a session, the calling one among them. Sessions may share a pool:
/// whoever finds it busy works alone. Waiting threads sleep.
class ThreadPool final : public kernels::Executor {
 public:
  /// So many threads work on one call, the calling one included; 0: one for each core that the
  /// process may use. If the platform has no threads, everything runs on the calling one.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override;

  void parallel_for(std::int64_t count, const Body& body) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sape2::infer
