// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/stage1.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/gemm.h"
#include "cpu/math-inl.h"
#include "cpu/pack.h"
#include "cpu/stage1.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

HWY_INLINE int smaller(int a, int b) {
  return a < b ? a : b;
}

/// In a grid of up to so many columns, choosing among all of a row's numbers beats taking them one
/// by one.
constexpr int kFewColumns = kLanes == 1 ? 0 : 2 * kLanes;

/// A row or column of the grid: patches `start`, `start + step`, …
struct Line {
  int start, step, length, first_entry;
};

HWY_INLINE int line_count(const Layout& layout) {
  return layout.rows + layout.cols;
}

HWY_INLINE Line line_of(const Layout& layout, int index) {
  if (index < layout.rows) return {index * layout.cols, 1, layout.cols, 0};
  return {index - layout.rows, layout.cols, layout.rows, layout.cols};
}

}  // namespace

Stage1::Stage1(const Layout& layout, const Encoding& encoding, bool backward, Arena& arena)
    : layout_(layout),
      encoding_(encoding),
      sets_(sets_of(encoding.source)),
      lines_(layout.rows + layout.cols),
      positions_(static_cast<int>(encoding.positions)) {
  const int longest = padded(layout.rows > layout.cols ? layout.rows : layout.cols);
  scores_ = arena.take(layout.panels(lines_));
  gates_ = arena.take(static_cast<std::size_t>(lines_) * kTile);
  clamped_ = arena.take(static_cast<std::size_t>(lines_) * kTile);
  table_ = arena.take(static_cast<std::size_t>(2 * positions_) * kTile);
  for (float*& place : places_) place = arena.take(layout.padded_tokens);
  for (int set = 0; set < sets_; ++set) {
    tables_[set] = arena.take(static_cast<std::size_t>(2 * positions_) * layout.ld);
  }
  if (backward) {
    dtable_ = arena.take(static_cast<std::size_t>(2 * positions_) * kTile);
    dpositions_ = arena.take(static_cast<std::size_t>(lines_) * kTile);
  }
  line_ = arena.take(static_cast<std::size_t>(longest) * layout.ld);
  line_panel_ = arena.take(static_cast<std::size_t>(longest) * padded(layout.head_size));
  line_scores_ = arena.take(static_cast<std::size_t>(longest) * longest);
  if (places_[0] == nullptr) return;
  for (int n = 0; n < layout.patches; ++n) {
    places_[0][n] = static_cast<float>(n % layout.cols);
    places_[1][n] = static_cast<float>(n / layout.cols);
  }
}

void Stage1::select_head(std::int64_t head) {
  gate_scale_ = encoding_.gate_scale[head];
  gate_offset_ = encoding_.gate_offset[head];
  const std::int64_t size = static_cast<std::int64_t>(positions_) * layout_.head_size;
  const std::int64_t offset = encoding_.tables_per_head ? head * size : 0;
  for (int set = 0; set < sets_; ++set) {
    const Tables& tables = from_q(set) ? encoding_.q_tables : encoding_.k_tables;
    const float* axes[2] = {tables.x + offset, tables.y + offset};
    for (int a = 0; a < 2; ++a) {
      load_rows(axes[a], DType::float32, layout_.head_size, positions_, layout_.head_size,
                tables_[set] + static_cast<std::ptrdiff_t>(a) * positions_ * layout_.ld,
                layout_.ld);
    }
  }
}

Axis Stage1::axis(int which, int panel) const {
  return {encoding_.span, which == 0 ? layout_.cols : layout_.rows, positions_,
          places_[which] + layout_.panel(panel).start};
}

void Stage1::read_scores(int panel, const float* s) {
  const F f;
  const Panel p = layout_.panel(panel);
  const int cols = layout_.cols;
  float* x_scores = scores_at(panel);
  float* y_scores = x_scores + static_cast<std::ptrdiff_t>(cols) * kTile;
  // Lanes of one grid row read the same rows of S. Vectors may write past them: lanes go upwards,
  // so what comes next puts it right.
  const int first_row = p.start / cols;
  for (int m = 0; m < cols; ++m) {
    const float* from = s + static_cast<std::ptrdiff_t>(first_row * cols + m) * kTile;
    int next = smaller(p.patches, (first_row + 1) * cols - p.start);
    for (int lane = 0; lane < p.patches; next = smaller(p.patches, next + cols)) {
      for (; lane < next; lane += kLanes) {
        hn::StoreU(hn::LoadU(f, from + lane), f, x_scores + m * kTile + lane);
      }
      lane = next;
      from += static_cast<std::ptrdiff_t>(cols) * kTile;
    }
  }
  for (int m = 0; m < layout_.rows; ++m) {
    const float* from = s + static_cast<std::ptrdiff_t>(m * cols) * kTile;
    if (cols <= kFewColumns) {
      for (int lane = 0; lane < p.width; lane += kLanes) {
        const V place = hn::LoadU(f, places_[0] + p.start + lane);
        V score = hn::LoadU(f, from + lane);
        for (int x = 1; x < cols; ++x) {
          const auto here = hn::Eq(place, hn::Set(f, static_cast<float>(x)));
          score = hn::IfThenElse(here, hn::LoadU(f, from + x * kTile + lane), score);
        }
        hn::StoreU(score, f, y_scores + m * kTile + lane);
      }
      continue;
    }
    int x = p.start % cols;
    for (int lane = 0; lane < p.patches; ++lane) {
      y_scores[m * kTile + lane] = from[static_cast<std::ptrdiff_t>(x) * kTile + lane];
      if (++x == cols) x = 0;
    }
  }
  clear_lanes(x_scores, lines_, p.patches, p.width);
}

void Stage1::add_scores_gradient(int panel, float* ds) {
  const F f;
  const Panel p = layout_.panel(panel);
  const int cols = layout_.cols;
  const float* x_scores = scores_at(panel);
  const float* y_scores = x_scores + static_cast<std::ptrdiff_t>(cols) * kTile;
  for (int m = 0; m < cols; ++m) {
    for (int lane = 0; lane < p.patches;) {
      const int y = (p.start + lane) / cols;
      const int next = smaller(p.patches, (y + 1) * cols - p.start);
      float* to = ds + static_cast<std::ptrdiff_t>(y * cols + m) * kTile;
      int at = lane;
      for (; at + kLanes <= next; at += kLanes) {
        const V sum = hn::Add(hn::LoadU(f, to + at), hn::LoadU(f, x_scores + m * kTile + at));
        hn::StoreU(sum, f, to + at);
      }
      for (; at < next; ++at) to[at] += x_scores[m * kTile + at];
      lane = next;
    }
  }
  for (int m = 0; m < layout_.rows; ++m) {
    int x = p.start % cols;
    for (int lane = 0; lane < p.patches; ++lane) {
      ds[static_cast<std::ptrdiff_t>(m * cols + x) * kTile + lane] += y_scores[m * kTile + lane];
      if (++x == cols) x = 0;
    }
  }
}

void Stage1::compute_scores(const float* q, const float* k) {
  const int ld = layout_.ld;
  for (int index = 0; index < line_count(layout_); ++index) {
    const Line line = line_of(layout_, index);
    const int width = padded(line.length);
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(line.start) * ld;
    load_rows(q + first, DType::float32, static_cast<std::int64_t>(line.step) * ld, line.length,
              layout_.head_size, line_, ld);
    transpose(line_, ld, width, layout_.head_size, line_panel_, width);
    gemm(line.length, width, layout_.head_size, k + first, line.step * ld, line_panel_, width,
         line_scores_, width, false);
    int panel = 0;
    Panel p = layout_.panel(0);
    for (int i = 0; i < line.length; ++i) {
      const int n = line.start + i * line.step;
      while (n >= p.start + p.width) p = layout_.panel(++panel);
      float* to = scores_at(panel) + line.first_entry * kTile + (n - p.start);
      for (int m = 0; m < line.length; ++m) to[m * kTile] = line_scores_[m * width + i];
    }
  }
}

void Stage1::add_scores_gradient(const float* q, const float* k, float* dq, float* dk) {
  const int ld = layout_.ld;
  for (int index = 0; index < line_count(layout_); ++index) {
    const Line line = line_of(layout_, index);
    const int width = padded(line.length);
    const int step = line.step * ld;
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(line.start) * ld;
    int panel = 0;
    Panel p = layout_.panel(0);
    for (int i = 0; i < line.length; ++i) {
      const int n = line.start + i * line.step;
      while (n >= p.start + p.width) p = layout_.panel(++panel);
      const float* from = scores_at(panel) + line.first_entry * kTile + (n - p.start);
      for (int m = 0; m < line.length; ++m) line_scores_[m * width + i] = from[m * kTile];
    }
    gemm_transposed(line.length, layout_.width, line.length, line_scores_, width, k + first, step,
                    dq + first, step, true);
    gemm(line.length, layout_.width, line.length, line_scores_, width, q + first, step, dk + first,
         step, true);
  }
}

void Stage1::make_positions(int panel) {
  const int width = layout_.panel(panel).width;
  for (int which = 0; which < 2; ++which) {
    const std::ptrdiff_t first = which == 0 ? 0 : static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
    axis_positions(axis(which, panel), width, gate_scale_, gate_offset_, scores_at(panel) + first,
                   gates_ + first, clamped_ + first);
  }
}

void Stage1::make_table(int panel, int set, const float* const content[2]) {
  const float* columns =
      content[set] + static_cast<std::ptrdiff_t>(panel) * layout_.head_size * kTile;
  gemm(2 * positions_, layout_.panel(panel).width, layout_.head_size, tables_[set], layout_.ld,
       columns, kTile, table_, kTile, false);
}

void Stage1::vectors(int panel, const float* const content[2], bool merge, float* const axes[2]) {
  const Panel p = layout_.panel(panel);
  make_positions(panel);
  for (int set = 0; set < sets_; ++set) {
    make_table(panel, set, content);
    float* out = axes[merge ? 0 : set] + static_cast<std::ptrdiff_t>(panel) * lines_ * kTile;
    for (int which = 0; which < 2; ++which) {
      const std::ptrdiff_t first = which * static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
      axis_interpolate(axis(which, panel), p.width, clamped_ + first,
                       table_ + static_cast<std::ptrdiff_t>(which) * positions_ * kTile,
                       merge && set == 1, out + first);
    }
    clear_lanes(out, lines_, p.patches, p.width);
  }
}

void Stage1::vectors_gradient(int panel, const float* const content_panels[2],
                              const float* const content[2], const float* const daxes[2],
                              float* const dcontent[2], ChunkGradients* gradients) {
  const Panel p = layout_.panel(panel);
  const std::ptrdiff_t rows = static_cast<std::ptrdiff_t>(p.start) * layout_.ld;
  make_positions(panel);
  for (int set = 0; set < sets_; ++set) {
    make_table(panel, set, content_panels);
    clear(dtable_, static_cast<std::size_t>(2 * positions_) * kTile);
    const float* dvectors = daxes[set] + static_cast<std::ptrdiff_t>(panel) * lines_ * kTile;
    for (int which = 0; which < 2; ++which) {
      const std::ptrdiff_t first = which * static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
      const std::ptrdiff_t half = which * static_cast<std::ptrdiff_t>(positions_) * kTile;
      axis_interpolate_gradient(axis(which, panel), p.width, clamped_ + first, table_ + half,
                                dvectors + first, dtable_ + half, set > 0, dpositions_ + first);
    }
    gemm(2 * positions_, layout_.width, p.patches, dtable_, kTile, content[set] + rows, layout_.ld,
         gradients->tables[set], layout_.ld, true);
    gemm_transposed(p.patches, layout_.width, 2 * positions_, dtable_, kTile, tables_[set],
                    layout_.ld, dcontent[set] + rows, layout_.ld, true);
  }
  for (int which = 0; which < 2; ++which) {
    const std::ptrdiff_t first = which * static_cast<std::ptrdiff_t>(layout_.cols) * kTile;
    const GateGradient gate =
        axis_gate_gradient(axis(which, panel), p.width, gate_scale_, scores_at(panel) + first,
                           gates_ + first, dpositions_ + first);
    gradients->gate_scale += gate.scale;
    gradients->gate_offset += gate.offset;
  }
  load_rows(dpositions_, DType::float32, kTile, lines_, p.width, scores_at(panel), kTile);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
