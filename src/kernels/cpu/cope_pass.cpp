// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cope_pass.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/axis.h"
#include "cpu/backward-inl.h"
#include "cpu/cope_pass.h"
#include "cpu/forward-inl.h"
#include "cpu/run_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kTileSize = static_cast<std::size_t>(kTile) * kTile;

/// Positions and biases of one tile after another, for one panel of queries at a time. The whole
/// sequence is one line in the sense of stage 1, taken in pieces.
class CopeTiles {
 public:
  CopeTiles(const AttentionTask& task, const CopeEncoding& encoding, Arena& arena)
      : task_(task),
        encoding_(encoding),
        layout_(task.layout),
        positions_(static_cast<int>(encoding.positions)) {
    table_ = arena.take(static_cast<std::size_t>(positions_) * layout_.ld);
    values_ = arena.take(static_cast<std::size_t>(positions_) * kTile);
    gates_ = arena.take(kTileSize);
    clamped_ = arena.take(kTileSize);
    bias_ = arena.take(kTileSize);
    carry_ = arena.take(2 * kTile);
  }

  void load_table() {
    load_rows(encoding_.table, DType::float32, layout_.head_size, positions_, layout_.head_size,
              table_, layout_.ld);
  }

  /// Table values of a panel of queries; positions start again from the end.
  void select(const Head& head, int queries) {
    gemm(positions_, layout_.panel(queries).width, layout_.head_size, table_, layout_.ld,
         head.q_panels_ + static_cast<std::ptrdiff_t>(queries) * layout_.head_size * kTile, kTile,
         values_, kTile, false);
    clear(carry_, 2 * kTile);
  }

  Axis axis(int keys) const {
    const Panel n = layout_.panel(keys);
    return {Span::suffix, n.valid, positions_, nullptr, layout_.tokens - n.start - n.valid};
  }

  /// Positions of a tile's scores. Adds their gates to `carry`.
  void advance(int queries, int keys, const float* scores, float* carry) {
    axis_positions(axis(keys), layout_.panel(queries).width, encoding_.gate_scale, 0.0F, scores,
                   gates_, clamped_, carry);
  }

  /// The bias at the positions found last.
  TileBias bias(int queries, int keys) {
    axis_interpolate(axis(keys), layout_.panel(queries).width, clamped_, values_, false, bias_);
    TileBias result;
    result.kind = TileBias::Kind::tile;
    result.rows = layout_.panel(keys).valid;
    result.factor = encoding_.inside ? task_.inputs.scale : 1.0F;
    result.tile = bias_;
    return result;
  }

  const AttentionTask& task_;
  const CopeEncoding& encoding_;
  const Layout& layout_;
  int positions_;
  float* table_;    // (positions, ld)
  float* values_;   // (positions, kTile): q_i · e[p]
  float* gates_;    // (keys, kTile)
  float* clamped_;  // (keys, kTile): positions
  float* bias_;     // (keys, kTile)
  float* carry_;    // (2, kTile): sum of the gates of all later keys
};

class CopeForward {
 public:
  CopeForward(const AttentionTask& task, const CopeEncoding& encoding, Arena& arena)
      : core_(task, arena), tiles_(task, encoding, arena) {}

  void select_head(std::int64_t head) {
    core_.head_.select_head(head);
    tiles_.load_table();
  }

  void run(const HeadOfImage& current, const HeadOfImage* next) {
    core_.load(current, next);
    const int panels = core_.layout_.panel_count;
    for (int i = 0; i < panels; ++i) {
      tiles_.select(core_.head_, i);
      for (int n = panels - 1; n >= 0; --n) {
        float* scores = core_.head_.scores(i, n);
        tiles_.advance(i, n, scores, tiles_.carry_);
        core_.tile(i, n, tiles_.bias(i, n), scores);
      }
    }
    core_.finish(current.image);
  }

 private:
  Forward core_;
  CopeTiles tiles_;
};

class CopeBackward {
 public:
  CopeBackward(const AttentionTask& task, const CopeEncoding& encoding, Arena& arena)
      : layout_(task.layout), core_(task, arena), tiles_(task, encoding, arena) {
    later_ = arena.take(layout_.panels(2));
    dvalues_ = arena.take(static_cast<std::size_t>(tiles_.positions_) * kTile);
    raw_ = arena.take(kTileSize);
    dbias_ = arena.take(kTileSize);
    dpositions_ = arena.take(kTileSize);
    earlier_ = arena.take(2 * kTile);
  }

  void select_head(std::int64_t head) {
    core_.head_.select_head(head);
    tiles_.load_table();
  }

  void run(const HeadOfImage& current, const HeadOfImage* next) {
    core_.load(current, next);
    for (int i = 0; i < layout_.panel_count; ++i) {
      panel(i, core_.task_.chunk_gradients + current.chunk);
    }
    core_.store(current.image);
  }

 private:
  void panel(int queries, ChunkGradients* gradients) {
    const Panel i = layout_.panel(queries);
    tiles_.select(core_.head_, queries);
    // Positions are sums from the end, their gradients sums from the start: the first way through
    // the keys only notes what lies behind each tile,
    // and sums delta where that is not known yet.
    for (int n = layout_.panel_count - 1; n >= 0; --n) {
      load_rows(tiles_.carry_, DType::float32, kTile, 2, kTile, later_ + 2 * n * kTile, kTile);
      const float* scores = core_.head_.scores(queries, n);
      tiles_.advance(queries, n, scores, tiles_.carry_);
      if (core_.sums_delta()) core_.add_delta(queries, n, tiles_.bias(queries, n), scores);
    }
    clear(dvalues_, static_cast<std::size_t>(tiles_.positions_) * kTile);
    clear(earlier_, 2 * kTile);
    for (int n = 0; n < layout_.panel_count; ++n) tile(queries, n);

    const std::ptrdiff_t rows = static_cast<std::ptrdiff_t>(i.start) * layout_.ld;
    gemm(tiles_.positions_, layout_.width, i.valid, dvalues_, kTile, core_.head_.q_ + rows,
         layout_.ld, gradients->tables[0], layout_.ld, true);
    gemm_transposed(i.valid, layout_.width, tiles_.positions_, dvalues_, kTile, tiles_.table_,
                    layout_.ld, core_.dq_ + rows, layout_.ld, true);
  }

  void tile(int queries, int keys) {
    const F f;
    const int width = layout_.panel(queries).width;
    const int rows = layout_.panel(keys).valid;
    float* scores = core_.head_.scores(queries, keys);
    load_rows(scores, DType::float32, kTile, rows, width, raw_, kTile);
    tiles_.advance(queries, keys, scores, later_ + 2 * keys * kTile);
    core_.tile(queries, keys, tiles_.bias(queries, keys), scores);

    const V ratio = hn::Set(f, tiles_.encoding_.inside ? 1.0F : 1.0F / tiles_.task_.inputs.scale);
    for (int r = 0; r < rows; ++r) {
      for (int at = r * kTile; at < r * kTile + width; at += kLanes) {
        hn::StoreU(hn::Mul(ratio, hn::LoadU(f, scores + at)), f, dbias_ + at);
      }
    }
    const Axis axis = tiles_.axis(keys);
    axis_interpolate_gradient(axis, width, tiles_.clamped_, tiles_.values_, dbias_, dvalues_, false,
                              dpositions_);
    axis_gate_gradient(axis, width, tiles_.encoding_.gate_scale, raw_, tiles_.gates_, dpositions_,
                       earlier_);
    for (int r = 0; r < rows; ++r) {
      for (int at = r * kTile; at < r * kTile + width; at += kLanes) {
        hn::StoreU(hn::Add(hn::LoadU(f, scores + at), hn::LoadU(f, dpositions_ + at)), f,
                   scores + at);
      }
    }
    core_.add_score_products(queries, keys, scores);
  }

  const Layout& layout_;
  Backward core_;
  CopeTiles tiles_;
  float* later_;       // (panels, 2, kTile): gates behind each panel of keys
  float* dvalues_;     // (positions, kTile)
  float* raw_;         // (keys, kTile): scores
  float* dbias_;       // (keys, kTile)
  float* dpositions_;  // (keys, kTile)
  float* earlier_;     // (2, kTile): gradients of all earlier positions
};

}  // namespace

void cope_forward_chunks(const AttentionTask& task, const CopeEncoding& encoding,
                         std::int64_t begin, std::int64_t end) {
  run_chunks<CopeForward>(task.chunks, begin, end, task.inputs.scratch, task, encoding);
}

void cope_backward_chunks(const AttentionTask& task, const CopeEncoding& encoding,
                          std::int64_t begin, std::int64_t end) {
  run_chunks<CopeBackward>(task.chunks, begin, end, task.inputs.scratch, task, encoding);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(cope_forward_chunks);
HWY_EXPORT(cope_backward_chunks);

void cope_forward_chunks(const AttentionTask& task, const CopeEncoding& encoding,
                         std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(cope_forward_chunks)(task, encoding, begin, end);
}

void cope_backward_chunks(const AttentionTask& task, const CopeEncoding& encoding,
                          std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(cope_backward_chunks)(task, encoding, begin, end);
}

}  // namespace sape2::kernels
#endif
