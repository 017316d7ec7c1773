#pragma once

#include "sape2/kernels/types.h"

#include <cstdint>
#include <vector>

/// The formulas in plain float64 loops, forward and backward: what the CUDA kernels are held
/// against.
namespace sape2::kernels::test {

using Numbers = std::vector<double>;

/// One call of attention. Vectors are (sets, images, heads, patches, entries), made from tables if
/// there are any, else given.
struct Problem {
  Shape shape;
  bool has_bias = true;
  bool has_tables = true;
  Form form = Form::distance;
  Source source = Source::k;
  Span span = Span::suffix;
  bool inside = true;
  bool tables_per_head = false;
  std::int64_t positions = 0;
  double scale = 1;
  bool tf32 = false;     // how the GPU may round
  std::int64_t gap = 0;  // elements between rows on the GPU, which are then not aligned

  Numbers q, k, v, dout;                  // (images, heads, tokens, head size)
  Numbers gain, gate_scale, gate_offset;  // (heads)
  bool has_gain = true;                   // else all are 1, and nobody is told of them
  Numbers tables[2][2];                   // [set][axis]
  Numbers vectors[2];                     // [axis], where given

  int sets() const { return source == Source::qk ? 2 : 1; }
};

struct Solution {
  Numbers out, lse, dq, dk, dv, dgain, dgate_scale, dgate_offset;
  double dgain_terms = 0;  // the sizes of what dgain sums up, which may cancel
  Numbers dtables[2][2];
  Numbers vectors[2], dvectors[2];
};

Solution solve(const Problem& problem);

}  // namespace sape2::kernels::test
