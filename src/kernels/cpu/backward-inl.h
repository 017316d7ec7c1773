// The backward pass over one head, tile by tile; included once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_BACKWARD_INL_H_
#undef SAPE2_KERNELS_CPU_BACKWARD_INL_H_
#else
#define SAPE2_KERNELS_CPU_BACKWARD_INL_H_
#endif

#include "cpu/gemm.h"
#include "cpu/head.h"
#include "cpu/math-inl.h"
#include "cpu/pack.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

class Backward {
 public:
  Backward(const AttentionTask& task, Arena& arena)
      : task_(task), layout_(task.layout), head_(task, true, arena) {
    constexpr std::size_t kTileSize = static_cast<std::size_t>(kTile) * kTile;
    dout_buffer_ = arena.take(layout_.matrix());
    dout_panels_ = arena.take(layout_.panels(layout_.head_size));
    for (float*& buffer : gradient_buffers_) buffer = arena.take(layout_.matrix());
    maximum_ = arena.take(layout_.padded_tokens);
    inverse_ = arena.take(layout_.padded_tokens);
    delta_ = arena.take(layout_.padded_tokens);
    out_panel_ = arena.take(static_cast<std::size_t>(layout_.width) * kTile);
    probabilities_ = arena.take(kTileSize);
  }

  float* rows(float* matrix, int panel) const {
    return matrix + static_cast<std::ptrdiff_t>(layout_.panel(panel).start) * layout_.ld;
  }

  /// Packs a head's inputs and clears its gradients.
  void load(const HeadOfImage& current, const HeadOfImage* next) {
    const std::int64_t image = current.image;
    const DType dtype = task_.inputs.dtype;
    const AttentionSaved& saved = task_.saved;
    const AttentionGradients& gradients = task_.gradients;
    head_.queue_.clear();
    if (next) {
      for (const View* view : {&gradients.dq, &gradients.dk, &gradients.dv}) {
        head_.prefetch(as_const(*view), *next, true);
      }
      head_.prefetch_inputs(*next);
      head_.prefetch(saved.dout, *next, false);
      if (!one_tile()) head_.prefetch(saved.out, *next, false);
    }
    head_.load(image);
    dout_ = packed_head(layout_, head_of(saved.dout, dtype, image, head_.head_), dtype,
                        saved.dout.token_stride, dout_buffer_);
    transpose_head(layout_, dout_, dout_panels_);
    if (sums_delta()) {
      clear(delta_, layout_.padded_tokens);
    } else if (!one_tile()) {
      float* out = gradient_buffers_[2];  // dv's, not needed yet
      load_head(layout_, head_of(saved.out, dtype, image, head_.head_), dtype,
                saved.out.token_stride, out);
      make_delta(out);
    }
    dq_ = cleared(gradients.dq, gradient_buffers_[0]);
    dk_ = cleared(gradients.dk, gradient_buffers_[1]);
    dv_ = cleared(gradients.dv, gradient_buffers_[2]);

    const SoftmaxRow* softmax =
        saved.softmax + (image * task_.inputs.shape.heads + head_.head_) * layout_.tokens;
    for (int n = 0; n < layout_.tokens; ++n) {
      const SoftmaxRow& row = softmax[layout_.token_of(n)];
      maximum_[n] = row.maximum;
      inverse_[n] = 1.0F / row.sum;
    }
    // Padding gets probability 0.
    for (int n = layout_.tokens; n < layout_.padded_tokens; ++n) maximum_[n] = 1e30F;
  }

  /// Whether delta has to be summed over all tiles before the first gradient: a 16-bit output has
  /// lost the digits that delta needs.
  bool sums_delta() const { return task_.inputs.dtype != DType::float32 && !one_tile(); }

  void add_delta(int queries, int keys, const TileBias& bias, const float* scores) {
    const Panel i = layout_.panel(queries);
    const Panel n = layout_.panel(keys);
    make_dprobabilities(queries, keys);
    softmax_delta_tile(n.valid, i.width, task_.inputs.scale, bias,
                       {maximum_ + i.start, inverse_ + i.start}, scores, probabilities_,
                       delta_ + i.start);
  }

  /// Adds to dv and turns `scores` into dS, both (keys, queries). For a direct bias, dx and dy take
  /// its sums. Returns Σ dS · b of a bias tile.
  double tile(int queries, int keys, const TileBias& bias, float* scores, float* dx = nullptr,
              float* dy = nullptr) {
    const Panel i = layout_.panel(queries);
    const Panel n = layout_.panel(keys);
    make_dprobabilities(queries, keys);
    const double gain = softmax_gradient_tile(
        n.valid, i.width, task_.inputs.scale, bias, {maximum_ + i.start, inverse_ + i.start},
        one_tile() ? nullptr : delta_ + i.start, scores, probabilities_, dx, dy);
    gemm(n.valid, layout_.width, i.valid, probabilities_, kTile, head_.rows(dout_, queries),
         layout_.ld, rows(dv_, keys), layout_.ld, true, &head_.queue_);
    return gain;
  }

  /// Adds to dq and dk what follows from dS of a tile.
  void add_score_products(int queries, int keys, const float* ds) {
    const Panel i = layout_.panel(queries);
    const Panel n = layout_.panel(keys);
    gemm(n.valid, layout_.width, i.valid, ds, kTile, head_.rows(head_.q_, queries), layout_.ld,
         rows(dk_, keys), layout_.ld, true, &head_.queue_);
    gemm_transposed(i.valid, layout_.width, n.valid, ds, kTile, head_.rows(head_.k_, keys),
                    layout_.ld, rows(dq_, queries), layout_.ld, true, &head_.queue_);
  }

  /// Writes the gradients that are wanted.
  void store(std::int64_t image) const {
    const DType dtype = task_.inputs.dtype;
    const View* views[3] = {&task_.gradients.dq, &task_.gradients.dk, &task_.gradients.dv};
    const float* matrices[3] = {dq_, dk_, dv_};
    for (int m = 0; m < 3; ++m) {
      if (matrices[m] != gradient_buffers_[m] || views[m]->data == nullptr) continue;
      store_head(layout_, matrices[m], nullptr, head_of(*views[m], dtype, image, head_.head_),
                 dtype, views[m]->token_stride);
    }
  }

  const AttentionTask& task_;
  const Layout& layout_;
  Head head_;
  float *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;  // (tokens, ld)

 private:
  /// Where a gradient is summed up: in place, or in `buffer`, which `store` writes out.
  float* cleared(const View& view, float* buffer) const {
    const DType dtype = task_.inputs.dtype;
    float* matrix = buffer;
    if (view.data != nullptr && is_packed(layout_, dtype, view.token_stride)) {
      matrix = static_cast<float*>(head_of(view, dtype, head_.image_, head_.head_));
    }
    clear(matrix, layout_.matrix());
    return matrix;
  }

  bool one_tile() const { return layout_.panel_count == 1; }

  /// dP of a tile, where its probabilities will stand.
  void make_dprobabilities(int queries, int keys) {
    gemm(layout_.panel(keys).valid, layout_.panel(queries).width, layout_.head_size,
         head_.rows(head_.v_, keys), layout_.ld,
         dout_panels_ + static_cast<std::ptrdiff_t>(queries) * layout_.head_size * kTile, kTile,
         probabilities_, kTile, false, &head_.queue_);
  }

  /// delta_i = dout_i · out_i, summed in the same order as dP: where one key takes all, the two
  /// are the same number, and their difference is exactly 0.
  void make_delta(const float* out) {
    const F f;
    for (int i = 0; i < layout_.panel_count; ++i) {
      const Panel p = layout_.panel(i);
      transpose(out + static_cast<std::ptrdiff_t>(p.start) * layout_.ld, layout_.ld, p.width,
                layout_.head_size, out_panel_, kTile);
      const float* dout = dout_panels_ + static_cast<std::ptrdiff_t>(i) * layout_.head_size * kTile;
      for (int lane = 0; lane < p.width; lane += kLanes) {
        V sum = hn::Zero(f);
        for (int c = 0; c < layout_.head_size; ++c) {
          const int at = c * kTile + lane;
          sum = hn::MulAdd(hn::LoadU(f, out_panel_ + at), hn::LoadU(f, dout + at), sum);
        }
        hn::StoreU(sum, f, delta_ + p.start + lane);
      }
    }
  }

  const float* dout_ = nullptr;         // (tokens, ld)
  float *dout_buffer_, *dout_panels_;   // (tokens, ld), (panels, head_size, kTile)
  float *maximum_, *inverse_, *delta_;  // (tokens)
  float* gradient_buffers_[3]{};        // (tokens, ld): of dq, dk, dv
  float* out_panel_;                    // (head_size, kTile)
  float* probabilities_;                // (kTile, kTile)
};

}  // namespace
}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
