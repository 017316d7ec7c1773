#pragma once

#include "sape2/kernels/scratch_pool.h"

#include <cstddef>
#include <cstdint>

namespace sape2::infer {

/// A block of a pool's memory, given back at the end.
class Scratch {
 public:
  Scratch(kernels::ScratchPool& pool, std::int64_t floats)
      : pool_(pool),
        size_(static_cast<std::size_t>(floats) * sizeof(float)),
        memory_(pool.take(size_)) {}
  ~Scratch() { pool_.give_back(memory_, size_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* memory() const { return memory_; }
  float* floats() const { return static_cast<float*>(memory_); }

 private:
  kernels::ScratchPool& pool_;
  std::size_t size_;
  void* memory_;
};

}  // namespace sape2::infer
