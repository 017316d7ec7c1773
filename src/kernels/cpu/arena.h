#pragma once

#include "sape2/kernels/scratch_pool.h"

#include <cstddef>

namespace sape2::kernels {

/// Memory aligned for vectors, counted in scratch_use().
void* allocate_block(std::size_t bytes);
void free_block(void* block, std::size_t bytes);

/// Scratch memory for one thread: one aligned, zero-filled block, handed out front to back. A
/// default Arena has no block and only counts, to plan a real one with the same calls.
class Arena {
 public:
  Arena() = default;
  /// The block comes from `pool`, or is this object's own; a thread may keep a small one for the
  /// next object.
  explicit Arena(std::size_t floats, ScratchPool* pool = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// `count` floats on cache lines of their own; null while only counting.
  float* take(std::size_t count);

  std::size_t used() const { return used_; }

 private:
  float* block_ = nullptr;
  std::size_t capacity_ = 0;
  ScratchPool* pool_ = nullptr;
  bool is_spare_ = false;  // the block is the thread's
  std::size_t used_ = 0;
};

}  // namespace sape2::kernels
