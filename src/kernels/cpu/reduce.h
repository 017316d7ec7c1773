#pragma once

#include "sape2/kernels/vectors.h"

#include "cpu/arena.h"
#include "cpu/task.h"

#include <vector>

namespace sape2::kernels {

/// The chunks' own gradients while a backward pass runs, and their sums, in a fixed order, after.
class GradientSums {
 public:
  /// `sets` pairs of tables of `positions` rows; 0 sets where there are none.
  GradientSums(const Chunks& chunks, const Layout& layout, int sets, std::int64_t positions);

  ChunkGradients* chunks() { return gradients_.data(); }

  /// Null pointers are not wanted.
  void write_gain(float* dgain) const;
  void write_encoding(const Encoding& encoding, const EncodingGradients& target) const;
  /// One (rows, head_size) table of a set from row `first` on, for one head or (−1) all of them.
  void write_table(int set, int first, int rows, std::int64_t head, float* target) const;

 private:
  void write_scalar(double ChunkGradients::*member, float* target) const;

  Chunks chunks_;
  Layout layout_;
  Arena arena_;
  std::vector<ChunkGradients> gradients_;
};

}  // namespace sape2::kernels
