#pragma once

#include "sape2/kernels/types.h"

#include <cstddef>

namespace sape2::kernels {

/// Queries are cut into panels of at most this many; a tile is a panel of queries against a panel
/// of keys. One tile row is 64 floats: 4 AVX-512 vectors.
inline constexpr int kTile = 64;

/// All widths are padded to this many floats, the longest vector.
inline constexpr int kPad = 16;

constexpr int padded(int n) {
  return (n + kPad - 1) / kPad * kPad;
}

struct Panel {
  int start = 0;
  int width = 0;    ///< a multiple of kPad
  int valid = 0;    ///< tokens in it
  int patches = 0;  ///< the first so many of them are patches
};

/// Geometry of one head. Tokens are held with the patches first and the prefix tokens behind them,
/// so that patch n stands at n; attention does not mind the order.
struct Layout {
  int rows, cols, prefix, patches, tokens;
  int head_size;
  int width;        ///< head_size, padded
  int ld;           ///< distance of two tokens in a packed (tokens, head_size) matrix
  int panel_count;  ///< panels of nearly equal width
  int padded_tokens;

  explicit Layout(const Shape& shape)
      : rows(static_cast<int>(shape.rows)),
        cols(static_cast<int>(shape.cols)),
        prefix(static_cast<int>(shape.prefix)),
        patches(rows * cols),
        tokens(prefix + patches),
        head_size(static_cast<int>(shape.head_size)),
        width(padded(head_size)),
        // A power of two between rows would put them all in a few cache sets.
        ld(width > kTile && width % kTile == 0 ? width + kPad : width),
        panel_count((padded(tokens) + kTile - 1) / kTile),
        padded_tokens(padded(tokens)) {}

  Panel panel(int index) const {
    const int vectors = padded_tokens / kPad;
    const int base = vectors / panel_count;
    const int longer = vectors % panel_count;
    Panel p;
    p.start = kPad * (index * base + (index < longer ? index : longer));
    p.width = kPad * (base + (index < longer ? 1 : 0));
    p.valid = clamp(tokens - p.start, p.width);
    p.patches = clamp(patches - p.start, p.width);
    return p;
  }

  /// Where token n of this order stands outside.
  int token_of(int n) const { return n < patches ? prefix + n : n - patches; }

  /// Floats of a packed (tokens, head_size) matrix, padding rows included.
  std::size_t matrix() const { return static_cast<std::size_t>(padded_tokens) * ld; }
  /// Floats of all panels of `depth` rows of kTile.
  std::size_t panels(int depth) const {
    return static_cast<std::size_t>(panel_count) * depth * kTile;
  }

 private:
  static int clamp(int value, int high) { return value < 0 ? 0 : (value > high ? high : value); }
};

}  // namespace sape2::kernels
