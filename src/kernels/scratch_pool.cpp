#include "sape2/kernels/scratch_pool.h"

#include "cpu/arena.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace sape2::kernels {

struct ScratchPool::State {
  struct Block {
    void* memory;
    std::size_t size;
  };

  mutable std::mutex mutex;
  std::vector<Block> free;
  std::size_t bytes = 0;
};

ScratchPool::ScratchPool() : state_(std::make_unique<State>()) {
  constexpr std::size_t kManyThreads = 64;
  state_->free.reserve(kManyThreads);
}

ScratchPool::~ScratchPool() {
  for (const State::Block& block : state_->free) free_block(block.memory, block.size);
}

void* ScratchPool::take(std::size_t& size) {
  const std::lock_guard lock(state_->mutex);
  std::vector<State::Block>& free = state_->free;
  const auto found =
      std::ranges::find_if(free, [&](const auto& block) { return block.size >= size; });
  if (found != free.end()) {
    void* memory = found->memory;
    size = found->size;
    *found = free.back();
    free.pop_back();
    return memory;
  }
  // A block that is too small would only lie about.
  if (!free.empty()) {
    free_block(free.back().memory, free.back().size);
    state_->bytes -= free.back().size;
    free.pop_back();
  }
  void* memory = allocate_block(size);
  state_->bytes += size;
  return memory;
}

void ScratchPool::give_back(void* block, std::size_t size) {
  const std::lock_guard lock(state_->mutex);
  state_->free.push_back({block, size});
}

std::size_t ScratchPool::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

}  // namespace sape2::kernels
