// Declared once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_STAGE1_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_STAGE1_H_
#undef SAPE2_KERNELS_CPU_STAGE1_H_
#else
#define SAPE2_KERNELS_CPU_STAGE1_H_
#endif

#include "cpu/arena.h"
#include "cpu/axis.h"
#include "cpu/task.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

/// Stage 1 of one head. "Lines" below are x's entries, then y's: cols + rows of them.
class Stage1 {
 public:
  Stage1(const Layout& layout, const Encoding& encoding, bool backward, Arena& arena);

  /// Reads the tables and gates of a head; once for all its images.
  void select_head(std::int64_t head);

  /// Scores of every patch with its row and column: read off S of one panel of queries …
  void read_scores(int panel, const float* s);  // (tokens, kTile)
  /// … or computed, where S is never there as a whole.
  void compute_scores(const float* q, const float* k);  // (tokens, ld) each

  /// Vectors of one panel; `content` is q or k of each set as panels. With `merge` both sets are
  /// summed into the first.
  void vectors(int panel, const float* const content[2], bool merge, float* const axes[2]);

  /// Gradient of `vectors`. Adds to dcontent and to the chunk's tables and gates, and leaves the
  /// scores' gradient in place of the scores.
  void vectors_gradient(int panel, const float* const content_panels[2],
                        const float* const content[2],  // (tokens, ld) each
                        const float* const daxes[2], float* const dcontent[2],
                        ChunkGradients* gradients);

  /// Adds the scores' gradient to dS of one panel …
  void add_scores_gradient(int panel, float* ds);  // (tokens, kTile)
  /// … or what follows from it to dq and dk.
  void add_scores_gradient(const float* q, const float* k, float* dq, float* dk);

  int sets() const { return sets_; }
  bool from_q(int set) const { return set_is_from_q(encoding_.source, set); }

 private:
  Axis axis(int which, int panel) const;
  float* scores_at(int panel) const {
    return scores_ + static_cast<std::ptrdiff_t>(panel) * lines_ * kTile;
  }
  void make_positions(int panel);
  void make_table(int panel, int set, const float* const content[2]);

  const Layout& layout_;
  const Encoding& encoding_;
  int sets_, lines_, positions_;
  float gate_scale_ = 0.0F;
  float gate_offset_ = 0.0F;

  float* scores_;     // (panels, lines, kTile)
  float* gates_;      // (lines, kTile)
  float* clamped_;    // (lines, kTile)
  float* table_;      // (2 · positions, kTile)
  float* places_[2];  // (tokens) each
  float* tables_[2];  // (2 · positions, ld) by set
  float* dtable_ = nullptr;
  float* dpositions_ = nullptr;
  float* line_;         // (longest line, ld)
  float* line_panel_;   // (head_size, longest line)
  float* line_scores_;  // (longest line, longest line)
};

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
