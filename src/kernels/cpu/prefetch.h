#pragma once

#include <cstddef>

namespace sape2::kernels {

/// Memory that will be needed soon, fetched a few lines at a time in between arithmetic: all at
/// once, the requests would only wait for each other.
class PrefetchQueue {
 public:
  void clear() { count_ = current_ = 0; }

  /// `rows` rows of `bytes`, `stride` bytes apart, to be read or (`write`) overwritten.
  void add(const void* first, std::ptrdiff_t stride, std::ptrdiff_t bytes, int rows, bool write) {
    if (count_ < kRanges)
      ranges_[count_++] = {static_cast<const char*>(first), stride, bytes, 0, rows, write};
  }

  /// Fetches the next lines, if any are left.
  void fetch_some() {
    for (int lines = 0; lines < kLinesAtOnce && current_ < count_; ++lines) {
      Range& range = ranges_[current_];
      // Into the second-level cache: the first is full of the head at hand.
      if (range.write) {
        __builtin_prefetch(range.row + range.at, 1, 2);
      } else {
        __builtin_prefetch(range.row + range.at, 0, 2);
      }
      range.at += kLine;
      if (range.at < range.bytes) continue;
      range.at = 0;
      range.row += range.stride;
      if (--range.rows == 0) ++current_;
    }
  }

 private:
  static constexpr int kRanges = 8;
  static constexpr int kLinesAtOnce = 24;
  static constexpr std::ptrdiff_t kLine = 64;

  struct Range {
    const char* row;
    std::ptrdiff_t stride, bytes, at;
    int rows;
    bool write;
  };
  Range ranges_[kRanges];
  int count_ = 0;
  int current_ = 0;
};

}  // namespace sape2::kernels
