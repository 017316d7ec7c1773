#pragma once

#include "sape2/base/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sape2::kernels::cuda {

/// Hands out parts of the caller's scratch memory. Without memory it only counts, so that one
/// function both says how much is needed and lays it out.
class Arena {
 public:
  Arena() = default;
  Arena(void* data, std::size_t bytes)
      : data_(static_cast<unsigned char*>(data)), limit_(bytes), counts_only_(false) {}

  void* take_bytes(std::size_t bytes) {
    const std::size_t begin = place_;
    place_ += (bytes + 255) / 256 * 256;
    used_ = std::max(used_, place_);
    if (counts_only_) return nullptr;
    if (place_ > limit_)
      throw Error("the workspace has " + std::to_string(limit_) +
                  " bytes, fewer than the workspace function asks for; pass as "
                  "many as it says");
    return data_ + begin;
  }
  float* take_floats(std::int64_t count) {
    return static_cast<float*>(take_bytes(static_cast<std::size_t>(count) * sizeof(float)));
  }
  /// Where the next part will begin; returning there hands out what followed once more.
  std::size_t place() const { return place_; }
  void return_to(std::size_t place) { place_ = place; }
  /// The most that was in use at once.
  std::size_t used() const { return used_; }

 private:
  unsigned char* data_ = nullptr;
  std::size_t limit_ = 0;
  std::size_t place_ = 0, used_ = 0;
  bool counts_only_ = true;
};

}  // namespace sape2::kernels::cuda
