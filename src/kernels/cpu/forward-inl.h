// The forward pass over one head, tile by tile; included once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_FORWARD_INL_H_
#undef SAPE2_KERNELS_CPU_FORWARD_INL_H_
#else
#define SAPE2_KERNELS_CPU_FORWARD_INL_H_
#endif

#include "cpu/gemm.h"
#include "cpu/head.h"
#include "cpu/math-inl.h"
#include "cpu/pack.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

class Forward {
 public:
  Forward(const AttentionTask& task, Arena& arena)
      : task_(task),
        layout_(task.layout),
        head_(task, false, arena),
        out_(arena.take(layout_.matrix())),
        maximum_(arena.take(layout_.padded_tokens)),
        sum_(arena.take(layout_.padded_tokens)),
        inverse_(arena.take(layout_.padded_tokens)),
        shrink_(arena.take(kTile)) {}

  /// Packs a head's inputs and starts its softmax.
  void load(const HeadOfImage& current, const HeadOfImage* next) {
    head_.queue_.clear();
    head_.prefetch(as_const(task_.outputs.out), current, true);
    if (next) head_.prefetch_inputs(*next);
    head_.load(current.image);
    for (int n = 0; n < layout_.padded_tokens; ++n) {
      maximum_[n] = -hwy::HighestValue<float>();
      sum_[n] = 0.0F;
    }
  }

  /// Adds a tile of keys to the outputs of its queries; `p` holds its scores, (keys, queries).
  void tile(int queries, int keys, const TileBias& bias, float* p) {
    const Panel i = layout_.panel(queries);
    const Panel n = layout_.panel(keys);
    float* out = out_ + static_cast<std::ptrdiff_t>(i.start) * layout_.ld;
    const bool first = sum_[i.start] == 0.0F;
    const bool shrinks = softmax_tile(n.valid, i.width, task_.inputs.scale, bias, p,
                                      {maximum_ + i.start, sum_ + i.start, shrink_});
    if (!first && shrinks) scale_rows(out, i.valid);
    gemm_transposed(i.valid, layout_.width, n.valid, p, kTile, head_.rows(head_.v_, keys),
                    layout_.ld, out, layout_.ld, !first, &head_.queue_);
  }

  /// Writes the outputs.
  void finish(std::int64_t image) {
    for (int n = 0; n < layout_.tokens; ++n) inverse_[n] = 1.0F / sum_[n];
    const View& view = task_.outputs.out;
    store_head(layout_, out_, inverse_, head_of(view, task_.inputs.dtype, image, head_.head_),
               task_.inputs.dtype, view.token_stride);
    if (task_.outputs.softmax == nullptr) return;
    SoftmaxRow* softmax =
        task_.outputs.softmax + (image * task_.inputs.shape.heads + head_.head_) * layout_.tokens;
    for (int n = 0; n < layout_.tokens; ++n) softmax[layout_.token_of(n)] = {maximum_[n], sum_[n]};
  }

  const AttentionTask& task_;
  const Layout& layout_;
  Head head_;

 private:
  void scale_rows(float* out, int count) const {
    const F f;
    for (int r = 0; r < count; ++r) {
      const V by = hn::Set(f, shrink_[r]);
      float* row = out + static_cast<std::ptrdiff_t>(r) * layout_.ld;
      for (int c = 0; c < layout_.width; c += kLanes) {
        hn::StoreU(hn::Mul(by, hn::LoadU(f, row + c)), f, row + c);
      }
    }
  }

  float* out_;                        // (tokens, ld)
  float *maximum_, *sum_, *inverse_;  // (tokens)
  float* shrink_;                     // (kTile)
};

}  // namespace
}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
