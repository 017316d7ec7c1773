// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_HEAD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_HEAD_H_
#undef SAPE2_KERNELS_CPU_HEAD_H_
#else
#define SAPE2_KERNELS_CPU_HEAD_H_
#endif

#include "cpu/arena.h"
#include "cpu/prefetch.h"
#include "cpu/softmax.h"
#include "cpu/stage1.h"
#include "cpu/task.h"

#include <hwy/highway.h>

#include <optional>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// Heads of at most so many tokens keep all their scores in the second-level cache, where stage 1
/// reads its gates off them.
inline constexpr int kWholeHead = 256;

/// What forward and backward share for one head: packed inputs, scores, axis vectors, biases.
class Head {
 public:
  Head(const AttentionTask& task, bool backward, Arena& arena);

  void select_head(std::int64_t head);
  /// Packs q, k, v and makes the axis vectors.
  void load(std::int64_t image);
  /// Queues memory of another head, or of this one's results, where heads are small enough for
  /// their loads to matter. `write`: it will be overwritten.
  void prefetch(const ConstView& view, const HeadOfImage& of, bool write);
  void prefetch_inputs(const HeadOfImage& next);

  /// Scores of a tile, (keys, kTile): those at hand, or computed now.
  float* scores(int queries, int keys);

  /// Bias of a tile that lies on or below the diagonal (keys ≥ queries).
  TileBias bias(int queries, int keys);
  /// Bias of the tile with queries and keys exchanged, after `bias`.
  TileBias mirrored_bias(int queries, int keys);

  /// Whether biases are symmetric, so that tiles are best visited in mirrored pairs.
  bool symmetric() const { return task_.kind == TileBias::Kind::tile; }

  const float* axes(int set, int panel) const { return axes_[set] + panel_offset(panel); }
  std::ptrdiff_t panel_offset(int panel) const {
    return static_cast<std::ptrdiff_t>(panel) * lines_ * kTile;
  }
  const float* rows(const float* matrix, int panel) const {
    return matrix + static_cast<std::ptrdiff_t>(layout_.panel(panel).start) * layout_.ld;
  }

  PrefetchQueue queue_;
  const AttentionTask& task_;
  const Layout& layout_;
  int lines_;  ///< cols + rows
  int sets_;   ///< of axis vectors as stage 2 sees them
  bool whole_head_;
  std::int64_t head_ = 0;
  std::int64_t image_ = 0;

  const float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;  // (tokens, ld)
  float* q_panels_;                                         // (panels, head_size, kTile)
  float* k_panels_ = nullptr;       // the same, where stage 1 takes content from k
  float* axes_[2]{};                // (panels, lines, kTile)
  float* scores_;                   // (panels, tokens, kTile), or one tile
  float* bias_tile_ = nullptr;      // (kTile, kTile): distances, keys × queries
  float* mirrored_tile_ = nullptr;  // (kTile, kTile): queries × keys
  float* inverse_tiles_[2][2]{};    // (kTile, kTile) by set and axis: 1 / distance
  float* vector_scratch_ = nullptr;
  std::optional<Stage1> stage1_;

 private:
  const float* panels_of(bool from_q) const { return from_q ? q_panels_ : k_panels_; }
  void make_axes();
  const float* pack(const ConstView& view, float* buffer) const;

  float *q_buffer_, *k_buffer_, *v_buffer_;
};

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
