#pragma once

#include "kernels/cuda/lines.h"

/// Stage 1 for usual calls: 16-bit types, heads of 64, one set of vectors, tables that no position
/// leaves, lines of up to 64 patches, rows aligned to 16 bytes.
namespace sape2::kernels::cuda {

inline constexpr int kUsualHead = 64;
inline constexpr int kUsualLine = 64;

/// Whether sizes alone allow it.
inline bool usual_sizes(const Geometry& g) {
  return g.head_size == kUsualHead && g.rows <= kUsualLine && g.cols <= kUsualLine;
}

/// Whether all but alignment does: one set of vectors, and tables that no position leaves.
inline bool usual_sizes(const StageOneParams& p) {
  bool exact = true;
  for (const AxisLines& axis : p.axes)
    exact = exact && (p.span == Span::suffix ? axis.positions == axis.length + 1
                                             : axis.origin == axis.length - 1);
  return exact && p.sets == 1 && usual_sizes(p.geometry);
}

/// Whether 32 bits count the elements of a head.
template <class AnyView>
bool is_counted(const Geometry& g, const AnyView& view) {
  return g.padded_tokens * view.token_stride < 0x7fffffff;
}

/// Whether a call is usual, but for its type.
inline bool is_usual(const StageOneParams& p) {
  const auto& g = p.geometry;
  if (!is_counted(g, p.q) || !is_counted(g, p.k)) return false;
  for (const float* table : p.tables[0])
    if (reinterpret_cast<std::uintptr_t>(table) % 16 != 0) return false;
  return usual_sizes(p) && g.aligned && g.batch_heads > 0;
}
inline bool is_usual(const StageOneBackward& p) {
  const auto& g = p.stage.geometry;
  const bool complete = p.dq.data != nullptr && p.dk.data != nullptr;
  return complete && !p.gradients.plain && is_counted(g, p.dq) && is_counted(g, p.dk) &&
         is_usual(p.stage);
}

/// Where vectors go, by axis, in the inputs' type: (batch_heads, padded_tokens, width). Where
/// shifts are given, (batch_heads, width) numbers of scratch, made ready for distances as
/// near_vectors does, with their squared lengths (batch_heads, padded_tokens).
struct UsualOutputs {
  void* vectors[2];
  int widths[2];
  float* squared_lengths[2];
  float* shifts[2];
};

/// False where a call is not usual, or the copy engine refuses it: others must then do all of it.
template <class T>
bool usual_stage_one_forward(const StageOneParams& p, const UsualOutputs& to, cudaStream_t stream);
template <class T>
bool usual_stage_one_backward(const StageOneBackward& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
