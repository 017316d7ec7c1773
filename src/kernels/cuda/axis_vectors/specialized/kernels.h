#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/params.h"

/// Stage 1 for specialized sizes: 16-bit types, heads of 64, one set of vectors, tables that no
/// position leaves, lines of up to 64 patches, rows aligned to 16 bytes.
namespace sape2::kernels::cuda::axis_vectors::specialized {

inline constexpr int kHeadSize = 64;
inline constexpr int kLongestLine = 64;

/// Whether sizes alone allow it.
inline bool sizes_fit(const Geometry& g) {
  return g.head_size == kHeadSize && g.rows <= kLongestLine && g.cols <= kLongestLine;
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

/// Whether these kernels serve a call, but for its type.
inline bool serves(const Params& p) {
  const auto& g = p.geometry;
  if (!counts_in_32_bits(g, p.q) || !counts_in_32_bits(g, p.k)) return false;
  for (const float* table : p.tables[0])
    if (reinterpret_cast<std::uintptr_t>(table) % 16 != 0) return false;
  return sizes_fit(p) && g.aligned && g.batch_heads > 0;
}
inline bool serves(const BackwardParams& p) {
  const auto& g = p.stage.geometry;
  const bool complete = p.dq.data != nullptr && p.dk.data != nullptr;
  return complete && !p.gradients.plain && counts_in_32_bits(g, p.dq) &&
         counts_in_32_bits(g, p.dk) && serves(p.stage);
}

/// Where vectors go, by axis, in the inputs' type: (batch_heads, padded_tokens, width). Where
/// shifts are given, (batch_heads, width) numbers of scratch, made ready for distances as
/// center does, with their squared lengths (batch_heads, padded_tokens).
struct Outputs {
  void* vectors[2];
  int widths[2];
  float* squared_lengths[2];
  float* centers[2];
};

/// False if these kernels do not serve the call, or if a tensor cannot be described to TMA; nothing
/// has been launched then that counts.
template <class T>
bool forward(const Params& p, const Outputs& to, cudaStream_t stream);
template <class T>
bool backward(const BackwardParams& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
