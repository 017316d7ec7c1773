#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/distance_bias.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/lines_generic.cuh"
#include "kernels/cuda/attention_head/lines_saved.cuh"
#include "kernels/cuda/attention_head/lines_specialized.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/products.cuh"
#include "kernels/cuda/attention_head/split_barrier.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// Scores of a warp's 16 queries with sixteen keys, made logits.
namespace sape2::kernels::cuda::head {

template <BiasForm Form>
inline constexpr int kVectorSets = Form == BiasForm::distance_pair ? 2 : 1;

/// The bias's factor in a logit.
template <BiasForm Form>
__device__ float bias_factor(const AttentionParams& p, int head) {
  if constexpr (Form == BiasForm::none) return 0.0F;
  return per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);
}

/// Logits times `unit`, less a number of each row. `Vector`: the type that vectors have.
template <class T, BiasForm Form, class Vector = float>
struct Logits {
  float scale, factor;
  // By column of the grid: the direct form's x_i, times `factor`, else 0; less `less`; −∞ beside
  // the grid. A lane's columns are the same in every second eight of keys (row width 16), or in
  // each (8).
  float along_x[2][4];
  const Vector* along_y;  // the direct form's y_i of this lane's first row
  int second_row;         // from there to its other row's
  int shift;              // eights of keys to grid rows
  float less_row[2];

  /// `lines`: the warp's vectors every `pitch` numbers, for the direct form; not looked at by a
  /// warp that does not use them.
  __device__ Logits(const ForwardParams& p, const Plan& plan, int head, const Vector* lines,
                    int pitch, float unit, const float (&less)[2], bool used = true)
      : scale(p.attention.scale * unit), factor(bias_factor<Form>(p.attention, head) * unit) {
    const auto& l = plan.layout;
    const Lane lane;
    along_y = lines + lane.g * pitch + l.row_width;
    second_row = 8 * pitch;
    shift = l.row_width == 16 ? 1 : 0;
    less_row[0] = less[0];
    less_row[1] = less[1];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = l.column_of(eight * 8) + 2 * lane.t + e % 2;
        float value = 0.0F;
        if (Form == BiasForm::direct && used)
          value = factor * widen(lines[(lane.g + e / 2 * 8) * pitch + x]);
        along_x[eight][e] = x < plan.geometry.cols ? value - less[e / 2] : -INFINITY;
      }
  }

  __device__ void make(float (&c)[2][4], const Plan& plan, int slot) const {
#pragma unroll
    for (int n8 = 0; n8 < 2; ++n8) {
      const bool in_grid = slot + 8 * n8 < plan.layout.grid_slots;
      if (in_grid && plan.layout.row_width == 12) {
        make_in_fours(c[n8], plan, slot + 8 * n8);
      } else if (in_grid) {
        float y[2] = {0.0F, 0.0F};
        if constexpr (Form == BiasForm::direct) {
          const Vector* const at = along_y + (slot / 8 + n8 >> shift);
          y[0] = factor * widen(at[0]);
          y[1] = factor * widen(at[second_row]);
        }
        float value[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) value[e] = along_x[n8][e] + y[e / 2];
#pragma unroll
        for (int e = 0; e < 4; ++e) c[n8][e] = fmaf(c[n8][e], scale, value[e]);
      } else {
        const int first = slot + 8 * n8 - plan.layout.grid_slots + 2 * Lane().t;
        const int behind = plan.geometry.prefix - plan.layout.beside;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          c[n8][e] = first + e % 2 < behind ? fmaf(c[n8][e], scale, -less_row[e / 2]) : -INFINITY;
      }
    }
  }

  /// Eight keys in rows of 12, where only four neighbours share a grid row.
  __device__ void make_in_fours(float (&c)[4], const Plan& plan, int slot) const {
    const int key = slot + 2 * Lane().t, row = plan.layout.row_of(key);
    const int column = plan.layout.column_of(key);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float value = -less_row[e / 2];
      if constexpr (Form == BiasForm::direct) {
        const Vector* const y = along_y + e / 2 * second_row;
        value = fmaf(factor,
                     widen(y[min(row, plan.geometry.rows - 1)]) +
                         widen(y[column + e % 2 - plan.layout.row_width]),
                     value);
      }
      const bool patch = column + e % 2 < plan.geometry.cols && row < plan.geometry.rows;
      c[e] = patch ? fmaf(c[e], scale, value) : -INFINITY;
    }
  }

  /// Adds one set's distances.
  __device__ void add_distances(float (&c)[2][4], const Plan& plan,
                                const CenteredVectors<T>& centered, const CenteredRows<T>& rows,
                                const bool (&has_bias)[2], int slot) const {
    float d[2][2][4];
    rows.squared(d[0], centered, 0, slot);
    rows.squared(d[1], centered, 1, slot);
#pragma unroll
    for (int n8 = 0; n8 < 2; ++n8)
      if (slot + 8 * n8 < plan.layout.grid_slots) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float both = fast_root(d[0][n8][e]) + fast_root(d[1][n8][e]);
          c[n8][e] = fmaf(has_bias[e / 2] ? factor : 0.0F, both, c[n8][e]);
        }
      }
  }

  /// Logits of prefix tokens that stand beside the grid, which all else takes for padding: of each
  /// eight keys at most one.
  struct Beside {
    bool here[2] = {false, false};
    float logits[2][2];  // by row
  };
  __device__ Beside logits_beside(const float (&scores)[2][4], const Plan& plan, int slot) const {
    Beside beside;
    if (!may_have_beside(plan, slot)) return beside;
    const int odd = plan.geometry.cols % 2;
#pragma unroll
    for (int n8 = 0; n8 < 2; ++n8) {
      const int at = slot + 8 * n8 + 2 * Lane().t + odd;
      beside.here[n8] =
          may_have_beside(plan, at) && plan.layout.column_of(at) == plan.geometry.cols;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        beside.logits[n8][half] =
            fmaf(odd ? scores[n8][2 * half + 1] : scores[n8][2 * half], scale, -less_row[half]);
    }
    return beside;
  }
  __device__ static void put_beside(float (&c)[2][4], const Plan& plan, int slot,
                                    const Beside& beside) {
    if (!may_have_beside(plan, slot)) return;
#pragma unroll
    for (int n8 = 0; n8 < 2; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (beside.here[n8] && e % 2 == plan.geometry.cols % 2) c[n8][e] = beside.logits[n8][e / 2];
  }

 private:
  __device__ static bool may_have_beside(const Plan& plan, int slot) {
    return slot < plan.layout.beside * plan.layout.row_width;
  }
};

/// Vectors that are given, of this lane's patch and axis.
template <class T>
__device__ void read_line(const ForwardParams& p, const LineWalk& walk, std::int64_t batch_head,
                          int slot, int axis, int first_set, int sets, float* to) {
  const auto& g = p.attention.geometry;
  const auto& l = p.layout;
  const std::int64_t patches = g.tokens - g.prefix;
  const int patch = slot / l.row_width * g.cols + slot % l.row_width;
  for (int m = 0; m < walk.length; ++m) {
    float sum = 0.0F;
    for (int set = first_set; set < first_set + sets && walk.is_patch; ++set)
      sum += widen(static_cast<const T*>(
          p.given[axis])[((set * g.batch_heads + batch_head) * patches + patch) * walk.length + m]);
    to[m] = sum;
  }
}

/// Addresses in shared memory that stage 1 reads.
struct StageOneOperands {
  std::uint32_t q, k;   // tiles
  std::uint32_t keys;   // LdmatrixOffsets::b_rows of all keys
  std::uint32_t own_k;  // LdmatrixOffsets::a of the warp's
  std::uint32_t tables;
};

/// Stage 1 of the warp's patches: vectors of all sets (the direct form's added up) to `lines`, one
/// set behind the other; `values` is scratch; `saved` gets what the backward pass needs.
/// `line_of(slot)`: where `lines` of any slot's warp are. A warp that has no slots comes along for
/// the barrier, `all`.
template <BiasForm Form, GridKind Grid, class T, int Size, class Saved, class LineOf, class Barrier>
__device__ void make_vectors(const ForwardParams& p, const Plan& plan, int own_row,
                             const Products<T, Size, Grid>& products, int head,
                             std::int64_t batch_head, const RowsAsA<T, Size>& q,
                             const StageOneOperands& places, float* lines, float* values,
                             Saved saved, LineOf line_of, Barrier& all) {
  constexpr int kSets = kVectorSets<Form>;
  const auto& l = plan.layout;
  if constexpr (shares_scores(Grid)) {
    if (products.works) share_line_scores(plan, q, places.q, places.k, line_of);
    all.arrive();
  }
  if constexpr (products.kByWarpgroups)
    table_values(p, l, products, places.tables, 0, 1, q, places.own_k, values);
  if constexpr (shares_scores(Grid)) all.wait();
  if (!products.works) return;
  const int lane = threadIdx.x % 32, row = lane % 16, axis = lane / 16;
  const LineWalk walk(l, plan.geometry, plan.span, own_row + row, axis);
  const int in_line = row * l.line_pitch + axis * l.row_width;
  const int merged = Form == BiasForm::direct ? plan.sets : 1;
  if (!plan.has_tables) {
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      read_line<T>(p, walk, batch_head, own_row + row, axis, set, merged,
                   lines + set * 16 * l.line_pitch + in_line);
    __syncwarp();
    return;
  }
  // The last set's vectors take the place of the scores.
  float* const scores = lines + (kSets - 1) * 16 * l.line_pitch;
  if constexpr (!shares_scores(Grid)) line_scores(l, own_row, q, places.keys, scores);
  const Gates gates(p.stage, head);
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    if constexpr (!products.kByWarpgroups) {
      __syncwarp();
      table_values(p, l, products, places.tables, set, merged, q, places.own_k, values);
    }
    __syncwarp();
    const float* const own_values = values + row * l.value_pitch + axis * l.second_table;
    if constexpr (Grid == GridKind::any) {
      walk_line(walk, p.stage.axes[axis], gates, scores + in_line, own_values,
                lines + set * 16 * l.line_pitch + in_line, set, saved);
    } else {
      walk_specialized_line<Grid, specialized_span(Form)>(walk, p.stage.axes[axis], gates,
                                                          scores + in_line, own_values, saved);
    }
  }
  saved.finish(walk, p.stage.axes[axis]);
  __syncwarp();
}

}  // namespace sape2::kernels::cuda::head
