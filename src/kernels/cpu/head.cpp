// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/head.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/distance.h"
#include "cpu/gemm.h"
#include "cpu/head.h"
#include "cpu/math-inl.h"
#include "cpu/pack.h"
#include "cpu/vector_panels.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {

Head::Head(const AttentionTask& task, bool backward, Arena& arena)
    : task_(task),
      layout_(task.layout),
      lines_(task.layout.rows + task.layout.cols),
      sets_(0),
      whole_head_(task.encoding != nullptr && task.layout.tokens <= kWholeHead) {
  q_buffer_ = arena.take(layout_.matrix());
  k_buffer_ = arena.take(layout_.matrix());
  v_buffer_ = arena.take(layout_.matrix());
  q_panels_ = arena.take(layout_.panels(layout_.head_size));
  const int score_rows = whole_head_ ? layout_.panel_count * layout_.padded_tokens : kTile;
  scores_ = arena.take(static_cast<std::size_t>(score_rows) * kTile);
  if (task.kind == TileBias::Kind::none) return;

  const int given =
      task.encoding ? sets_of(task.encoding->source) : static_cast<int>(task.vectors.sets);
  sets_ = task.kind == TileBias::Kind::direct ? 1 : given;
  for (int set = 0; set < sets_; ++set) axes_[set] = arena.take(layout_.panels(lines_));
  if (task.kind == TileBias::Kind::tile) {
    constexpr std::size_t kTileSize = static_cast<std::size_t>(kTile) * kTile;
    bias_tile_ = arena.take(kTileSize);
    mirrored_tile_ = arena.take(kTileSize);
    for (int set = 0; set < sets_ && backward; ++set) {
      for (float*& tile : inverse_tiles_[set]) tile = arena.take(kTileSize);
    }
  }
  if (task.encoding) {
    if (task.encoding->source != Source::q)
      k_panels_ = arena.take(layout_.panels(layout_.head_size));
    stage1_.emplace(layout_, *task.encoding, backward, arena);
  } else {
    vector_scratch_ = arena.take(vector_scratch(layout_));
  }
}

void Head::select_head(std::int64_t head) {
  head_ = head;
  if (stage1_) stage1_->select_head(head);
}

void Head::load(std::int64_t image) {
  image_ = image;
  q_ = pack(task_.inputs.q, q_buffer_);
  k_ = pack(task_.inputs.k, k_buffer_);
  v_ = pack(task_.inputs.v, v_buffer_);
  transpose_head(layout_, q_, q_panels_);
  if (k_panels_) transpose_head(layout_, k_, k_panels_);
  if (whole_head_) {
    for (int i = 0; i < layout_.panel_count; ++i) {
      gemm(layout_.tokens, layout_.panel(i).width, layout_.head_size, k_, layout_.ld,
           q_panels_ + static_cast<std::ptrdiff_t>(i) * layout_.head_size * kTile, kTile,
           scores_ + static_cast<std::ptrdiff_t>(i) * layout_.padded_tokens * kTile, kTile, false,
           &queue_);
    }
  }
  if (task_.kind != TileBias::Kind::none) make_axes();
}

const float* Head::pack(const ConstView& view, float* buffer) const {
  const DType dtype = task_.inputs.dtype;
  return packed_head(layout_, head_of(view, dtype, image_, head_), dtype, view.token_stride,
                     buffer);
}

void Head::prefetch(const ConstView& view, const HeadOfImage& of, bool write) {
  if (layout_.tokens > kWholeHead || view.data == nullptr) return;
  const DType dtype = task_.inputs.dtype;
  const std::ptrdiff_t size = dtype == DType::float32 ? 4 : 2;
  queue_.add(head_of(view, dtype, of.image, of.head), view.token_stride * size,
             layout_.head_size * size, layout_.tokens, write);
}

void Head::prefetch_inputs(const HeadOfImage& next) {
  for (const ConstView* view : {&task_.inputs.q, &task_.inputs.k, &task_.inputs.v}) {
    prefetch(*view, next, false);
  }
}

void Head::make_axes() {
  if (!stage1_) {
    const AttentionInputs& in = task_.inputs;
    const std::int64_t size = in.dtype == DType::float32 ? 4 : 2;
    for (int set = 0; set < task_.vectors.sets; ++set) {
      const std::int64_t image = task_.vectors.shared ? set : set * in.shape.images + image_;
      const std::int64_t at = (image * in.shape.heads + head_) * layout_.patches * size;
      load_vectors(layout_, static_cast<const char*>(task_.vectors.x) + at * layout_.cols,
                   static_cast<const char*>(task_.vectors.y) + at * layout_.rows, in.dtype,
                   set >= sets_, vector_scratch_, axes_[set < sets_ ? set : 0]);
    }
    return;
  }
  const float* content[2] = {};
  for (int set = 0; set < stage1_->sets(); ++set) content[set] = panels_of(stage1_->from_q(set));
  if (!whole_head_) stage1_->compute_scores(q_, k_);
  for (int i = 0; i < layout_.panel_count; ++i) {
    if (whole_head_) {
      stage1_->read_scores(
          i, scores_ + static_cast<std::ptrdiff_t>(i) * layout_.padded_tokens * kTile);
    }
    stage1_->vectors(i, content, task_.kind == TileBias::Kind::direct, axes_);
  }
}

float* Head::scores(int queries, int keys) {
  const Panel n = layout_.panel(keys);
  if (whole_head_) {
    return scores_ +
           (static_cast<std::ptrdiff_t>(queries) * layout_.padded_tokens + n.start) * kTile;
  }
  gemm(n.valid, layout_.panel(queries).width, layout_.head_size, rows(k_, keys), layout_.ld,
       q_panels_ + static_cast<std::ptrdiff_t>(queries) * layout_.head_size * kTile, kTile, scores_,
       kTile, false, &queue_);
  return scores_;
}

TileBias Head::bias(int queries, int keys) {
  TileBias result;
  result.kind = task_.kind;
  if (task_.kind == TileBias::Kind::none) return result;
  const Panel i = layout_.panel(queries);
  const Panel n = layout_.panel(keys);
  result.rows = n.patches;
  result.factor = task_.bias.gain[head_] * (task_.bias.inside ? task_.inputs.scale : 1.0F);
  if (task_.kind == TileBias::Kind::direct) {
    result.x = axes(0, queries);
    result.y = result.x + static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
    result.cols = layout_.cols;
    result.first_key = n.start;
    return result;
  }
  result.tile = bias_tile_;
  for (int set = 0; set < sets_; ++set) {
    for (int axis = 0; axis < 2; ++axis) {
      const std::ptrdiff_t first = axis * static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
      distance_tile(axis == 0 ? layout_.cols : layout_.rows, n.width, i.width,
                    axes(set, keys) + first, axes(set, queries) + first, set + axis > 0, bias_tile_,
                    inverse_tiles_[set][axis]);
    }
  }
  // Prefix tokens and padding have no bias.
  clear_lanes(bias_tile_, n.width, i.patches, i.width);
  for (int row = n.patches; row < n.width; ++row)
    clear_lanes(bias_tile_ + row * kTile, 1, 0, i.width);
  return result;
}

TileBias Head::mirrored_bias(int queries, int keys) {
  TileBias result;
  result.kind = task_.kind;
  result.rows = layout_.panel(queries).patches;
  result.factor = task_.bias.gain[head_] * (task_.bias.inside ? task_.inputs.scale : 1.0F);
  result.tile = mirrored_tile_;
  transpose(bias_tile_, kTile, layout_.panel(keys).width, layout_.panel(queries).width,
            mirrored_tile_, kTile);
  return result;
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
