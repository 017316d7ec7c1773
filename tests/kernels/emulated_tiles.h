#pragma once

#include "kernels/cpu/linear/tiles.h"

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace sape2::kernels::testing {

/// AMX's tiles in software, by the pseudo-code of Intel's Software Developer's Manual: denormal
/// inputs count as 0, results that are tiny become 0, everything else is rounded to the nearest,
/// ties to even. What the CPU answers with a fault is a std::logic_error here.
class EmulatedTiles {
 public:
  void configure(const TileConfig& config) {
    demand(config.palette == 1, "the palette is not 1");
    demand(config.start_row == 0, "a restart is not emulated");
    for (const std::uint8_t byte : config.reserved) demand(byte == 0, "a reserved byte is set");
    for (std::size_t t = 0; t < 16; ++t) {
      const int rows = config.rows[t], bytes = config.row_bytes[t];
      demand(t < kTiles || (rows == 0 && bytes == 0), "there are eight tiles");
      demand(rows <= kTileRows && bytes <= kTileRowBytes, "a tile is too large");
      demand((rows == 0) == (bytes == 0), "a tile has rows or columns alone");
      if (t < kTiles) tiles_[t] = {rows, bytes, {}};
    }
    configured_ = true;
  }

  void release() {
    tiles_ = {};
    configured_ = false;
  }

  template <int kTile>
  void zero() {
    tile<kTile>().bytes = {};
  }

  template <int kTile>
  void load(const void* memory, std::int64_t stride) {
    Tile& to = tile<kTile>();
    to.bytes = {};
    for (int r = 0; r < to.rows; ++r) {
      std::memcpy(to.row(r), static_cast<const char*>(memory) + r * stride,
                  static_cast<std::size_t>(to.row_bytes));
    }
  }

  template <int kTile>
  void store(void* memory, std::int64_t stride) {
    Tile& from = tile<kTile>();
    for (int r = 0; r < from.rows; ++r) {
      std::memcpy(static_cast<char*>(memory) + r * stride, from.row(r),
                  static_cast<std::size_t>(from.row_bytes));
    }
  }

  template <int kSum, int kLeft, int kRight>
  void multiply() {
    static_assert(kSum != kLeft && kSum != kRight && kLeft != kRight);
    Tile &sum = tile<kSum>(), &left = tile<kLeft>(), &right = tile<kRight>();
    demand(left.row_bytes % 4 == 0 && right.row_bytes % 4 == 0, "a row ends inside a pair");
    demand(left.row_bytes / 4 == right.rows, "the factors do not fit");
    demand(sum.rows == left.rows && sum.row_bytes == right.row_bytes, "the sums do not fit");
    for (int m = 0; m < sum.rows; ++m) {
      for (int n = 0; n < sum.row_bytes / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < left.row_bytes / 4; ++k) {
          even = multiply_add(left.bfloat16(m, 2 * k), right.bfloat16(k, 2 * n), even);
          odd = multiply_add(left.bfloat16(m, 2 * k + 1), right.bfloat16(k, 2 * n + 1), odd);
        }
        float total = 0;
        std::memcpy(&total, sum.row(m) + 4 * n, sizeof total);
        total = multiply_add(1.0F, total, multiply_add(1.0F, even, odd));
        std::memcpy(sum.row(m) + 4 * n, &total, sizeof total);
      }
    }
  }

  bool is_configured() const { return configured_; }

 private:
  static constexpr std::size_t kTiles = 8;

  struct Tile {
    int rows = 0, row_bytes = 0;
    std::array<char, kTileRows* kTileRowBytes> bytes = {};

    char* row(int index) { return bytes.data() + index * kTileRowBytes; }
    float bfloat16(int row_index, int index) {
      std::uint16_t upper = 0;
      std::memcpy(&upper, row(row_index) + 2 * index, sizeof upper);
      return std::bit_cast<float>(std::uint32_t{upper} << 16);
    }
  };

  static void demand(bool holds, const char* otherwise) {
    if (!holds) throw std::logic_error(otherwise);
  }

  template <int kTile>
  Tile& tile() {
    static_assert(kTile >= 0 && kTile < static_cast<int>(kTiles));
    demand(configured_ && tiles_[kTile].rows > 0, "the tile has no shape");
    return tiles_[kTile];
  }

  static float without_denormals(float number) {
    return std::abs(number) < FLT_MIN ? std::copysign(0.0F, number) : number;
  }

  static float multiply_add(float a, float b, float c) {
    a = without_denormals(a);
    b = without_denormals(b);
    c = without_denormals(c);
    const float result = std::fma(a, b, c);
    if (result == 0 || !(std::abs(result) <= FLT_MIN)) return result;
    // Whether it is tiny is decided after rounding to 24 bits, which FLT_MIN may not have seen.
    float& smaller = std::abs(a) < std::abs(b) ? a : b;
    smaller = std::ldexp(smaller, 64);
    const float scaled = std::fma(a, b, std::ldexp(c, 64));
    return std::abs(scaled) < std::ldexp(FLT_MIN, 64) ? std::copysign(0.0F, scaled) : result;
  }

  std::array<Tile, kTiles> tiles_;
  bool configured_ = false;
};

}  // namespace sape2::kernels::testing
