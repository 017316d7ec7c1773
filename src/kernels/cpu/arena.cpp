#include "cpu/arena.h"

#include "sape2/kernels/runtime.h"

#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace sape2::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLineFloats = kAlignment / sizeof(float);

std::atomic<std::int64_t> current_bytes{0};
std::atomic<std::int64_t> peak_bytes{0};

void count_bytes(std::int64_t change) {
  const std::int64_t now = current_bytes.fetch_add(change) + change;
  std::int64_t peak = peak_bytes.load();
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
}

void* new_block(std::size_t bytes) {
  return ::operator new (bytes, std::align_val_t{kAlignment});
}
void delete_block(void* block) {
  ::operator delete (block, std::align_val_t{kAlignment});
}

// Of up to this size, each thread keeps the last block it gave back: a call with little to do would
// spend more on a block of its own, for which the C library tidies its heap. The address sanitizer
// has to see where each block ends.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kSpareBytes = 0;
#else
constexpr std::size_t kSpareBytes = std::size_t{256} << 10;
#endif

/// A block of kSpareBytes, or none.
class Spare {
 public:
  Spare() = default;
  ~Spare() { delete_block(block_); }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;

  void* take() { return block_ ? std::exchange(block_, nullptr) : new_block(kSpareBytes); }
  void give_back(void* block) { delete_block(std::exchange(block_, block)); }

 private:
  void* block_ = nullptr;
};

thread_local Spare spare;

}  // namespace

void* allocate_block(std::size_t bytes) {
  void* block = new_block(bytes);
  count_bytes(static_cast<std::int64_t>(bytes));
  return block;
}

void free_block(void* block, std::size_t bytes) {
  delete_block(block);
  count_bytes(-static_cast<std::int64_t>(bytes));
}

Arena::Arena(std::size_t floats, ScratchPool* pool)
    : pool_(pool), is_spare_(pool == nullptr && floats * sizeof(float) <= kSpareBytes) {
  std::size_t bytes = floats * sizeof(float);
  if (is_spare_) {
    block_ = static_cast<float*>(spare.take());
    count_bytes(static_cast<std::int64_t>(bytes));
  } else {
    block_ = static_cast<float*>(pool ? pool->take(bytes) : allocate_block(bytes));
  }
  capacity_ = bytes / sizeof(float);
  std::memset(block_, 0, floats * sizeof(float));
}

Arena::~Arena() {
  if (block_ == nullptr) return;
  const std::size_t bytes = capacity_ * sizeof(float);
  if (is_spare_) {
    spare.give_back(block_);
    count_bytes(-static_cast<std::int64_t>(bytes));
  } else if (pool_) {
    pool_->give_back(block_, bytes);
  } else {
    free_block(block_, bytes);
  }
}

float* Arena::take(std::size_t count) {
  // One spare line, so that a vector may be read or written across the end of a buffer.
  const std::size_t size = (count + kLineFloats - 1) / kLineFloats * kLineFloats + kLineFloats;
  const std::size_t start = used_;
  used_ += size;
  if (block_ == nullptr) return nullptr;
  if (used_ > capacity_) throw std::logic_error("scratch memory was planned too small");
  return block_ + start;
}

ScratchUse scratch_use() {
  return {current_bytes.load(), peak_bytes.load()};
}

void reset_scratch_peak() {
  peak_bytes.store(current_bytes.load());
}

}  // namespace sape2::kernels
