#include "sape2/kernels/scratch_pool.h"

#include "cpu/arena.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace sape2::kernels {
namespace {

/// An address that every thread has its own of.
const void* this_thread() {
  thread_local const char place = 0;
  return &place;
}

}  // namespace

struct ScratchPool::State {
  struct Block {
    void* memory;
    std::size_t size;
    const void* last_user = nullptr;
  };

  // As large as any block that was asked for, so that one serves every call.
  Block allocate() {
    bytes += largest;
    return {allocate_block(largest), largest};
  }
  void release(const Block& block) {
    free_block(block.memory, block.size);
    bytes -= block.size;
  }
  // A block that was too small would only lie about.
  void drop_one() {
    if (free.empty()) return;
    release(free.back());
    free.pop_back();
  }

  mutable std::mutex mutex;
  std::vector<Block> free;
  std::size_t largest = 0;
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
  state_->largest = std::max(state_->largest, size);
  // A block that another thread wrote to would have to come from that thread's cache.
  auto found = std::ranges::find_if(free, [&](const auto& block) {
    return block.size >= size && block.last_user == this_thread();
  });
  if (found == free.end()) {
    found = std::ranges::find_if(free, [&](const auto& block) { return block.size >= size; });
  }
  State::Block block;
  if (found != free.end()) {
    block = *found;
    free.erase(found);
  } else {
    state_->drop_one();
    block = state_->allocate();
  }
  size = block.size;
  return block.memory;
}

void ScratchPool::reserve(int threads) {
  const std::lock_guard lock(state_->mutex);
  std::vector<State::Block>& free = state_->free;
  std::erase_if(free, [&](const State::Block& block) {
    if (block.size >= state_->largest) return false;
    state_->release(block);
    return true;
  });
  while (free.size() < static_cast<std::size_t>(threads)) free.push_back(state_->allocate());
}

void ScratchPool::give_back(void* block, std::size_t size) {
  const std::lock_guard lock(state_->mutex);
  state_->free.push_back({block, size, this_thread()});
}

std::size_t ScratchPool::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

}  // namespace sape2::kernels
