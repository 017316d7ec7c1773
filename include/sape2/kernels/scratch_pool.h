#pragma once

#include <cstddef>
#include <memory>

namespace sape2::kernels {

/// Keeps the scratch memory of kernels from one call to the next, so that calls of a size that was
/// there before allocate nothing. Threads may share one; it must outlive their calls.
class ScratchPool {
 public:
  ScratchPool();
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  /// A block of at least so many bytes, aligned for vectors, that nobody else has; what is in it is
  /// not defined. `size` becomes its real size.
  void* take(std::size_t& size);
  void give_back(void* block, std::size_t size);

  /// Makes sure that so many threads at once find what was ever taken, while none is taken.
  void reserve(int threads);

  /// What the pool has allocated.
  std::size_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sape2::kernels
