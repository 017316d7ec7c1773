#pragma once

#include <cstdint>
#include <functional>

namespace sape2::kernels {

/// Runs `body(begin, end)` over disjoint ranges that cover [0, count), on as many threads as it
/// likes. How it cuts the ranges never changes a result, not by one bit.
class Executor {
 public:
  using Body = std::function<void(std::int64_t begin, std::int64_t end)>;

  virtual ~Executor() = default;
  virtual void parallel_for(std::int64_t count, const Body& body) const = 0;

  /// How many threads that is at most, for whoever chooses `count`; 0: it does not know.
  virtual int threads() const { return 0; }
};

/// Everything on the calling thread.
class SerialExecutor final : public Executor {
 public:
  void parallel_for(std::int64_t count, const Body& body) const override {
    if (count > 0) body(0, count);
  }
  int threads() const override { return 1; }
};

}  // namespace sape2::kernels
