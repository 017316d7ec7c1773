// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/attention_pass.h"
#include "cpu/backward-inl.h"
#include "cpu/distance.h"
#include "cpu/run_chunks-inl.h"
#include "cpu/vector_panels.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

/// Everything but the tiles themselves: in what order they come, and the bias's gradients.
class AttentionBackward {
 public:
  AttentionBackward(const AttentionTask& task, Arena& arena)
      : task_(task), layout_(task.layout), core_(task, arena), head_(core_.head_) {
    constexpr std::size_t kTileSize = static_cast<std::size_t>(kTile) * kTile;
    for (int set = 0; set < head_.sets_; ++set) {
      daxes_[set] = arena.take(layout_.panels(head_.lines_));
    }
    if (head_.symmetric()) {
      for (float*& tile : ds_) tile = arena.take(kTileSize);
      weights_ = arena.take(kTileSize);
      weights_turned_ = arena.take(kTileSize);
    }
  }

  void select_head(std::int64_t head) { head_.select_head(head); }

  void run(const HeadOfImage& current, const HeadOfImage* next) {
    gradients_ = task_.chunk_gradients + current.chunk;
    core_.load(current, next);
    for (int set = 0; set < head_.sets_; ++set) clear(daxes_[set], layout_.panels(head_.lines_));
    const int panels = layout_.panel_count;
    if (core_.sums_delta()) {
      for (int i = 0; i < panels; ++i) {
        for (int n = 0; n < panels; ++n) {
          core_.add_delta(i, n, head_.bias(i, n), head_.scores(i, n));
        }
      }
    }
    for (int i = 0; i < panels; ++i) {
      for (int n = head_.symmetric() ? i : 0; n < panels; ++n) {
        if (head_.symmetric()) {
          mirrored_tiles(i, n);
        } else {
          tile(i, n, head_.bias(i, n), head_.scores(i, n));
        }
      }
    }
    finish_axes();
    if (head_.whole_head_) {
      for (int i = 0; i < panels; ++i) {
        for (int n = 0; n < panels; ++n) core_.add_score_products(i, n, head_.scores(i, n));
      }
    }
    core_.store(current.image);
  }

 private:
  /// Leaves dS in `scores`.
  void tile(int queries, int keys, const TileBias& bias, float* scores) {
    const bool direct = task_.kind == TileBias::Kind::direct;
    float* dx = direct ? daxes_[0] + head_.panel_offset(queries) : nullptr;
    float* dy = direct ? dx + static_cast<std::ptrdiff_t>(layout_.cols) * kTile : nullptr;
    gain_ += core_.tile(queries, keys, bias, scores, dx, dy);
    // Where the whole head is at hand, stage 1 adds to dS first.
    if (!head_.whole_head_) core_.add_score_products(queries, keys, scores);
  }

  /// Distance biases: a pair of tiles shares its distances, and a pair of patches its gradient.
  void mirrored_tiles(int queries, int keys) {
    const Panel i = layout_.panel(queries);
    const Panel n = layout_.panel(keys);
    const TileBias bias = head_.bias(queries, keys);
    const float* ds = tile_with_kept_gradient(queries, keys, bias, 0);
    const float* mirrored_ds = ds;
    if (keys != queries) {
      const TileBias mirrored = head_.mirrored_bias(queries, keys);
      mirrored_ds = tile_with_kept_gradient(keys, queries, mirrored, 1);
    }
    transpose(mirrored_ds, kTile, i.width, n.width, weights_turned_, kTile);
    float* both = weights_turned_;  // dS_in + dS_ni, (keys, queries)
    add_tile(ds, n.patches, i.width, both);
    for (int set = 0; set < head_.sets_; ++set) {
      for (int axis = 0; axis < 2; ++axis) add_distance_gradient(queries, keys, set, axis, both);
    }
  }

  const float* tile_with_kept_gradient(int queries, int keys, const TileBias& bias, int which) {
    float* scores = head_.scores(queries, keys);
    tile(queries, keys, bias, scores);
    if (head_.whole_head_) return scores;
    if (which == 1) return scores;
    // The mirrored tile's scores will overwrite these.
    const Panel n = layout_.panel(keys);
    load_rows(scores, DType::float32, kTile, n.valid, layout_.panel(queries).width, ds_[0], kTile);
    return ds_[0];
  }

  static void add_tile(const float* more, int count, int width, float* sum) {
    const F f;
    for (int r = 0; r < count; ++r) {
      for (int lane = r * kTile; lane < r * kTile + width; lane += kLanes) {
        hn::StoreU(hn::Add(hn::LoadU(f, sum + lane), hn::LoadU(f, more + lane)), f, sum + lane);
      }
    }
  }

  void add_distance_gradient(int queries, int keys, int set, int axis, const float* both) {
    const F f;
    const Panel i = layout_.panel(queries);
    const Panel n = layout_.panel(keys);
    const float* inverse = head_.inverse_tiles_[set][axis];
    for (int r = 0; r < n.patches; ++r) {
      for (int lane = r * kTile; lane < r * kTile + i.width; lane += kLanes) {
        const V weight = hn::Mul(hn::LoadU(f, both + lane), hn::LoadU(f, inverse + lane));
        hn::StoreU(weight, f, weights_ + lane);
      }
    }
    const int depth = axis == 0 ? layout_.cols : layout_.rows;
    const std::ptrdiff_t first = axis * static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
    const float* query_axes = head_.axes(set, queries) + first;
    const float* key_axes = head_.axes(set, keys) + first;
    distance_gradient(depth, n.patches, i.width, weights_, key_axes, query_axes,
                      daxes_[set] + head_.panel_offset(queries) + first);
    if (queries == keys) return;
    transpose(weights_, kTile, n.width, i.width, ds_[1], kTile);
    distance_gradient(depth, i.patches, n.width, ds_[1], query_axes, key_axes,
                      daxes_[set] + head_.panel_offset(keys) + first);
  }

  /// From dS to the vectors' gradients, and on through stage 1 or out.
  void finish_axes() {
    if (head_.sets_ == 0) return;
    const float ratio = task_.bias.inside ? 1.0F : 1.0F / task_.inputs.scale;
    if (task_.kind == TileBias::Kind::direct) gain_ = direct_gain();
    gradients_->gain += gain_ * static_cast<double>(ratio);
    gain_ = 0.0;
    const float factor = task_.bias.gain[head_.head_] * ratio;
    if (!head_.stage1_) {
      store_axes(factor);
      return;
    }
    Stage1& stage1 = *head_.stage1_;
    const float* panels[2] = {};
    const float* content[2] = {};
    const float* daxes[2] = {};
    float* dcontent[2] = {};
    for (int set = 0; set < stage1.sets(); ++set) {
      const bool q = stage1.from_q(set);
      panels[set] = q ? head_.q_panels_ : head_.k_panels_;
      content[set] = q ? head_.q_ : head_.k_;
      dcontent[set] = q ? core_.dq_ : core_.dk_;
      daxes[set] = daxes_[set < head_.sets_ ? set : 0];
    }
    for (int set = 0; set < head_.sets_; ++set) scale_axes(daxes_[set], factor);
    for (int i = 0; i < layout_.panel_count; ++i) {
      stage1.vectors_gradient(i, panels, content, daxes, dcontent, gradients_);
      if (head_.whole_head_) {
        stage1.add_scores_gradient(
            i, head_.scores_ + static_cast<std::ptrdiff_t>(i) * layout_.padded_tokens * kTile);
      }
    }
    if (!head_.whole_head_) stage1.add_scores_gradient(head_.q_, head_.k_, core_.dq_, core_.dk_);
  }

  /// Σ dS · b, where b is linear in the vectors.
  double direct_gain() const {
    const F f;
    double total = 0.0;
    for (int i = 0; i < layout_.panel_count; ++i) {
      const Panel p = layout_.panel(i);
      const float* axes = head_.axes(0, i);
      const float* daxes = daxes_[0] + head_.panel_offset(i);
      V sum = hn::Zero(f);
      for (int c = 0; c < head_.lines_; ++c) {
        for (int lane = c * kTile; lane < c * kTile + p.width; lane += kLanes) {
          sum = hn::MulAdd(hn::LoadU(f, axes + lane), hn::LoadU(f, daxes + lane), sum);
        }
      }
      total += static_cast<double>(sum_of(sum));
    }
    return total;
  }

  void scale_axes(float* daxes, float factor) const {
    const F f;
    const V by = hn::Set(f, factor);
    for (int i = 0; i < layout_.panel_count; ++i) {
      const Panel p = layout_.panel(i);
      float* rows = daxes + head_.panel_offset(i);
      for (int c = 0; c < head_.lines_; ++c) {
        for (int lane = c * kTile; lane < c * kTile + p.width; lane += kLanes) {
          hn::StoreU(hn::Mul(by, hn::LoadU(f, rows + lane)), f, rows + lane);
        }
      }
      clear_lanes(rows, head_.lines_, p.patches, p.width);
    }
  }

  void store_axes(float factor) const {
    const AttentionInputs& in = task_.inputs;
    const std::int64_t size = in.dtype == DType::float32 ? 4 : 2;
    for (int set = 0; set < task_.vectors.sets; ++set) {
      const std::int64_t at =
          ((set * in.shape.images + head_.image_) * in.shape.heads + head_.head_) *
          layout_.patches * size;
      char* dx = static_cast<char*>(task_.vector_gradients.dx);
      char* dy = static_cast<char*>(task_.vector_gradients.dy);
      store_vectors(layout_, daxes_[set < head_.sets_ ? set : 0], factor, in.dtype,
                    head_.vector_scratch_, dx ? dx + at * layout_.cols : nullptr,
                    dy ? dy + at * layout_.rows : nullptr);
    }
  }

  const AttentionTask& task_;
  const Layout& layout_;
  Backward core_;
  Head& head_;
  float* daxes_[2]{};                // (panels, lines, kTile)
  float* ds_[2]{};                   // (kTile, kTile)
  float* weights_ = nullptr;         // (kTile, kTile)
  float* weights_turned_ = nullptr;  // (kTile, kTile)
  double gain_ = 0.0;
  ChunkGradients* gradients_ = nullptr;
};

}  // namespace

void backward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end) {
  run_chunks<AttentionBackward>(task.chunks, begin, end, task.inputs.scratch, task);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(backward_chunks);

void backward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_chunks)(task, begin, end);
}

}  // namespace sape2::kernels
#endif
