#pragma once

#include "kernels/cuda/head_lines.cuh"
#include "kernels/cuda/head_near.cuh"

/// Scores of a warp's 16 queries with sixteen keys, made logits.
namespace sape2::kernels::cuda {

template <BiasForm Form>
inline constexpr int kHeadSets = Form == BiasForm::distance_pair ? 2 : 1;

template <class T, BiasForm Form>
struct HeadLogits {
  static constexpr int kSets = kHeadSets<Form>;
  float scale, factor;
  // By column of the grid: the direct form's x_i, times `factor`, else 0; −∞ beside the grid. A
  // lane's columns are the same in every second eight of keys (row width 16), or in each (8).
  float along_x[2][4];
  float row_factor[2];  // distance form: 0 for a prefix token's row

  /// `lines`: the warp's vectors, for the direct form.
  __device__ HeadLogits(const HeadForward& p, const OwnSlots& own, int head, const float* lines) {
    const auto& l = p.layout;
    const Lane lane;
    scale = p.attention.scale;
    factor = Form == BiasForm::none ? 0.0F
                                    : per_head(p.attention.gain, head, 1.0F) *
                                          (p.attention.inside ? p.attention.scale : 1.0F);
#pragma unroll
    for (int half = 0; half < 2; ++half) row_factor[half] = own.eight[half].y < 0 ? 0.0F : factor;
#pragma unroll
    for (int eight = 0; eight < 2; ++eight)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = (eight * 8 & (l.row_width - 1)) + 2 * lane.t + e % 2;
        float value = 0.0F;
        if constexpr (Form == BiasForm::direct)
          value = factor * lines[(lane.g + e / 2 * 8) * l.line_pitch + x];
        along_x[eight][e] = x < p.attention.geometry.cols ? value : -INFINITY;
      }
  }

  __device__ void make(float (&c)[2][4], const HeadForward& p, const OwnSlots& own, int slot,
                       const float* lines, unsigned char* shared) const {
    const auto& l = p.layout;
    const Lane lane;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const EightSlots keys(l, slot + 8 * piece);
      if (keys.y >= 0) {
        float along_y[2] = {0.0F, 0.0F};
        if constexpr (Form == BiasForm::direct) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            along_y[half] =
                factor * lines[(lane.g + 8 * half) * l.line_pitch + l.row_width + keys.y];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e)
          c[piece][e] = fmaf(c[piece][e], scale, along_x[piece][e] + along_y[e / 2]);
      } else {
        const int first = slot + 8 * piece - l.grid_slots + 2 * lane.t;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          c[piece][e] =
              first + e % 2 < p.attention.geometry.prefix ? c[piece][e] * scale : -INFINITY;
      }
    }
    if constexpr (kIsDistance<Form>) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const HeadNear<T> near(l, shared, set);
        float d[2][2][4];
        near.squared(d[0], 0, own.first, slot);
        near.squared(d[1], 1, own.first, slot);
#pragma unroll
        for (int piece = 0; piece < 2; ++piece)
          if (slot + 8 * piece < l.grid_slots) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              c[piece][e] =
                  fmaf(row_factor[e / 2], fast_root(d[0][piece][e]) + fast_root(d[1][piece][e]),
                       c[piece][e]);
          }
      }
    }
  }
};

/// Vectors that are given, of this lane's patch and axis.
template <class T>
__device__ void read_line(const HeadForward& p, const LineWalk& walk, std::int64_t batch_head,
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

/// Stage 1 of the warp's patches: vectors of all sets (the direct form's added up) to `lines`, one
/// set behind the other; `values` is scratch.
template <bool Keep, class T, int Size, BiasForm Form>
__device__ void make_vectors(const HeadForward& p, const OwnSlots& own, int head,
                             std::int64_t batch_head, const RowsAsA<T, Size>& q, const Tile<T>& k,
                             unsigned char* shared, float* lines, float* values,
                             const KeptLine& kept) {
  constexpr int kSets = kHeadSets<Form>;
  const auto& l = p.layout;
  const auto& g = p.attention.geometry;
  const int lane = threadIdx.x % 32, row = lane % 16, axis = lane / 16;
  const LineWalk walk(l, g, p.stage.span, own.first + row, axis);
  const int in_line = row * l.line_pitch + axis * l.row_width;
  const int merged = Form == BiasForm::direct ? p.stage.sets : 1;
  if (!p.has_tables) {
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      read_line<T>(p, walk, batch_head, own.first + row, axis, set, merged,
                   lines + set * 16 * l.line_pitch + in_line);
    __syncwarp();
    return;
  }
  // The last set's vectors take the place of the scores.
  float* const scores = lines + (kSets - 1) * 16 * l.line_pitch;
  line_scores(l, own, q, k, scores);
  const Gates gates(p.stage, head);
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    __syncwarp();
    table_values<T, Size>(p, shared + l.tables, set, merged, q, k, own.first, values);
    __syncwarp();
    walk_line<Keep>(walk, p.stage.axes[axis], gates, scores + in_line,
                    values + row * l.value_pitch + axis * l.second_table,
                    lines + set * 16 * l.line_pitch + in_line, set, kept);
  }
  __syncwarp();
}

}  // namespace sape2::kernels::cuda
