#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace sape2::infer {

/// What some tokens are on their way through a network. Each part begins on a cache line of its
/// own: a row across two lines would cost both, most of all where threads hand rows to each other.
struct Activations {
  float* tokens = nullptr;    ///< (tokens, width)
  float* qkv = nullptr;       ///< (tokens, 3 · width)
  float* attended = nullptr;  ///< (tokens, width)

  Activations() = default;
  /// In `memory`, which has floats_for() and begins on a cache line.
  Activations(float* memory, std::int64_t count, std::int64_t width)
      : tokens(memory),
        qkv(tokens + whole_lines(count * width)),
        attended(qkv + whole_lines(3 * count * width)) {}

  static std::int64_t floats_for(std::int64_t count, std::int64_t width) {
    return 2 * whole_lines(count * width) + whole_lines(3 * count * width);
  }

  static constexpr std::size_t kLine = 64;  // bytes

 private:
  static std::int64_t whole_lines(std::int64_t floats) {
    constexpr auto kFloats = static_cast<std::int64_t>(kLine / sizeof(float));
    return (floats + kFloats - 1) / kFloats * kFloats;
  }
};

/// Memory for Activations that grows, and never shrinks.
class ActivationMemory {
 public:
  /// For so many tokens; what was there is lost if it grows.
  void reserve(std::int64_t count, std::int64_t width) {
    const auto floats = static_cast<std::size_t>(Activations::floats_for(count, width));
    if (floats <= floats_) return;
    memory_.reset();
    memory_.reset(new (std::align_val_t{Activations::kLine}) float[floats]);
    floats_ = floats;
  }
  float* data() const { return memory_.get(); }
  std::size_t bytes() const { return floats_ * sizeof(float); }

 private:
  struct Free {
    void operator()(float* memory) const {
      ::operator delete[](memory, std::align_val_t{Activations::kLine});
    }
  };

  std::unique_ptr<float[], Free> memory_;
  std::size_t floats_ = 0;
};

}  // namespace sape2::infer
