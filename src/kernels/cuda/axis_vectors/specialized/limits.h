#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/params.h"

/// Which calls the specialized stage 1 kernels serve, in plain C++: 16-bit types, heads of 64, one
/// set of vectors, tables that no position leaves, lines of up to 64 patches, rows aligned to 16
/// bytes.
namespace sape2::kernels::cuda::axis_vectors::specialized {

inline constexpr int kHeadSize = 64;
inline constexpr int kLongestSpecializedLine = 64;

/// Whether sizes alone allow it.
inline bool sizes_fit(const Geometry& g) {
  return g.head_size == kHeadSize && g.rows <= kLongestSpecializedLine &&
         g.cols <= kLongestSpecializedLine;
}

/// Whether all but alignment does: one set of vectors, and tables that no position leaves.
inline bool sizes_fit(const Params& p) {
  bool exact = true;
  for (const AxisLines& axis : p.axes)
    exact = exact && (p.span == Span::suffix ? axis.positions == axis.length + 1
                                             : axis.origin == axis.length - 1);
  return exact && p.sets == 1 && sizes_fit(p.geometry);
}

/// Whether 32 bits count the elements of a head.
template <class AnyView>
bool counts_in_32_bits(const Geometry& g, const AnyView& view) {
  return g.padded_tokens * view.token_stride < 0x7fffffff;
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
