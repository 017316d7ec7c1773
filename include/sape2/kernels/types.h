#pragma once

#include <cstdint>

/// The kernels know no framework: plain pointers, strides in elements, and structs of parameters.
namespace sape2::kernels {

/// Element type of q, k, v, the output, given axis vectors and all their gradients. Sums are always
/// float32, and so are tables, gates, gains and their gradients.
enum class DType : std::uint8_t { float32, bfloat16 };

/// Which token's content makes the axis vectors.
enum class Source : std::uint8_t { q, k, qk };

/// How gates become positions: a sum to the end of the line, or the signed sum from the patch.
enum class Span : std::uint8_t { suffix, between };

/// How axis vectors become a bias: distance of two patches' vectors, or read at the other's place.
enum class Form : std::uint8_t { distance, direct };

/// A (images, heads, tokens, head_size) view whose last axis is contiguous. Strides in elements.
struct ConstView {
  const void* data = nullptr;
  std::int64_t image_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
};

/// The same, written to. As a gradient, `data == nullptr` means "not wanted".
struct View {
  void* data = nullptr;
  std::int64_t image_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
};

/// Patch (y, x) is token `prefix + y * cols + x`.
struct Shape {
  std::int64_t images = 0;
  std::int64_t heads = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t prefix = 0;
  std::int64_t head_size = 0;

  std::int64_t patches() const { return rows * cols; }
  std::int64_t tokens() const { return prefix + rows * cols; }
};

inline constexpr std::int64_t kMaxHeadSize = 256;

}  // namespace sape2::kernels
