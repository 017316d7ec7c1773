#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/products.cuh"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// Stage 1 of a warp's 16 patches. Scores along lines are read off q·k; then a lane takes one patch
/// and one axis and walks along that line: lanes 0–15 rows of the grid, lanes 16–31 columns.
namespace sape2::kernels::cuda::head {

/// The order in which a lane walks: away from where positions begin, so that positions are running
/// sums. Span::suffix: from the end of the line; Span::between: from the patch to the right, then
/// from the patch to the left.
struct LineWalk {
  int length = 0, own = 0;
  int steps = 0;    // 0 for a slot without a patch
  int restart = 0;  // the step at which sums begin anew
  bool between, is_patch = false;

  __device__ LineWalk(const Layout& l, const Geometry& g, Span span, int slot, int axis)
      : between(span == Span::between) {
    const int y = l.row_of(slot), x = l.column_of(slot);
    length = axis ? g.rows : g.cols;
    // Of 8 × 8 every slot is a patch, which the compiler would not see.
    if (l.grid != GridKind::eight && (y >= g.rows || x >= g.cols)) return;
    is_patch = true;
    own = axis ? y : x;
    steps = between ? length - 1 : length;
    restart = between ? length - 1 - own : 0;
  }
  __device__ bool forward(int step) const { return !between || step < restart; }
  __device__ int place(int step) const {
    return between ? (step < restart ? own + 1 + step : length - 2 - step) : length - 1 - step;
  }
};

/// A position moved into the table's reach; one that is no number stays so.
__device__ inline float clamped(float position, float low, float high) {
  float result;
  asm("{.reg .f32 t;\n max.NaN.f32 t, %1, %2;\n min.NaN.f32 %0, t, %3;}\n"
      : "=f"(result)
      : "f"(position), "f"(low), "f"(high));
  return result;
}

/// Where a clamped position lies between table row `row` and the next: weight is the next one's.
/// No number gives some row and a weight that is none.
struct TablePlace {
  int row;
  float weight;

  __device__ TablePlace(int below, float of_next) : row(below), weight(of_next) {}
  __device__ TablePlace(float position, int origin) {
    const float down = floorf(position);
    weight = position - down;
    row = static_cast<int>(down) + origin;
  }
};

__device__ inline float gate_of(float x) {
  return approximate_reciprocal(1.0F + power_of_2(-kLog2E * x));
}

/// A head's tables of all sets, rounded, below each other. A thread's numbers are all asked for
/// before one is waited for.
template <class T, int Size>
__device__ void load_tables(const ForwardParams& p, const Plan& plan, int head,
                            unsigned char* shared) {
  const auto& l = plan.layout;
  const int head_size = plan.geometry.head_size;
  constexpr int kPairs = Size / 2, kAtOnce = Size / 8;
  const int column = threadIdx.x % kPairs * 2, step = blockDim.x / kPairs;
  for (int set = 0; set < plan.sets; ++set) {
    const auto table_of = [&](int axis) {
      return p.stage.tables[set][axis] + head * p.stage.table_head_stride +
             std::int64_t(p.stage.axes[axis].table_first) * head_size + column;
    };
    const float *const x = table_of(0), *const y = table_of(1);
    unsigned char* const tile = shared + set * l.table_rows * kRowBytes<Size>;
#pragma unroll 1
    for (int first = threadIdx.x / kPairs; first < l.table_rows; first += kAtOnce * step) {
      float pairs[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i * step;
        const bool of_y = row >= l.second_table;
        const int in_table = of_y ? row - l.second_table : row;
        const bool used = in_table < (of_y ? p.stage.axes[1] : p.stage.axes[0]).positions;
        const float* const pair = (of_y ? y : x) + in_table * head_size;
        pairs[i][0] = used && column < head_size ? pair[0] : 0.0F;
        pairs[i][1] = used && column + 1 < head_size ? pair[1] : 0.0F;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i * step;
        if (row < l.table_rows)
          *reinterpret_cast<std::uint32_t*>(tile + LdmatrixOffsets<Size>::offset(row, column / 8) +
                                            column % 8 * 2) = pack<T>(pairs[i][0], pairs[i][1]);
      }
    }
  }
}

/// Of sixteen scores a row, those of a grid row of 9–16 with itself, to the warp's first and second
/// eight lines at this lane's rows.
__device__ inline void put_row_scores(const float (&c)[2][4], float* top, float* bottom) {
  const Lane lane;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int x = e / 2 * 8 + 2 * lane.t + e % 2;
    top[x] = c[e / 2][e % 2];
    bottom[x] = c[e / 2][2 + e % 2];
  }
}

/// q·k of the warp's patches with the patches of their grid rows and columns. `keys`:
/// LdmatrixOffsets::b_rows of the keys' first row.
template <class T, int Size>
__device__ void line_scores(const Layout& l, int own_row, const RowsAsA<T, Size>& q,
                            std::uint32_t keys, float* lines) {
  const Lane lane;
  const bool diagonal = lane.t == lane.g / 2, odd = lane.g % 2;
  float* const top = lines + lane.g * l.line_pitch;
  float* const bottom = top + 8 * l.line_pitch;
  if (l.row_width == 8) {  // sixteen slots: two grid rows
#pragma unroll 4
    for (int slot = 0; slot < l.grid_slots; slot += 16) {
      float c[2][4];
      multiply(c, q, at_slots<Size>(keys, slot));
      const int y = l.row_width + slot / 8;
      if (diagonal) {
        top[y] = odd ? c[0][1] : c[0][0];
        bottom[y] = odd ? c[0][3] : c[0][2];
        if (slot + 8 < l.grid_slots) {
          top[y + 1] = odd ? c[1][1] : c[1][0];
          bottom[y + 1] = odd ? c[1][3] : c[1][2];
        }
      }
      if (slot == own_row) {
        top[2 * lane.t] = c[0][0];
        top[2 * lane.t + 1] = c[0][1];
        bottom[2 * lane.t] = c[1][2];
        bottom[2 * lane.t + 1] = c[1][3];
      }
    }
    return;
  }
#pragma unroll 4
  for (int slot = 0; slot < l.grid_slots; slot += 16) {  // one grid row
    float c[2][4];
    multiply(c, q, at_slots<Size>(keys, slot));
    const int y = l.row_width + slot / 16;
    if (diagonal) {
      top[y] = odd ? c[0][1] : c[0][0];
      bottom[y] = odd ? c[1][3] : c[1][2];
    }
    if (slot == own_row) put_row_scores(c, top, bottom);
  }
}

/// a·table of the warp's patches, summed over the sets from `first` on, as values[row][table row].
/// `tables`: where the first begins; `own_k`: LdmatrixOffsets::a of the warp's keys. Where products
/// are warpgroups', of one set, all warps come along.
template <class T, int Size, GridKind Grid>
__device__ void table_values(const ForwardParams& p, const Layout& l,
                             const Products<T, Size, Grid>& products, std::uint32_t tables,
                             int first, int sets, const RowsAsA<T, Size>& q, std::uint32_t own_k,
                             float* values) {
  const Lane lane;
  const auto put = [&](const float(&c)[2][4], int row) {
    float* const to = values + lane.g * l.value_pitch + row + 2 * lane.t;
#pragma unroll
    for (int e = 0; e < 8; ++e)
      to[e / 2 % 2 * 8 * l.value_pitch + e / 4 * 8 + e % 2] = c[e / 4][e % 4];
  };
  if constexpr (products.kByWarpgroups) {
    RowsAsA<T, Size> source = q;
    if (!p.stage.first_from_q) source = RowsAsA<T, Size>(own_k);
    const auto make = [&](int row, auto count) {
      float c[decltype(count)::value][2][4];
      products.multiply_rows(c, source, tables, row);
#pragma unroll
      for (int n = 0; n < decltype(count)::value; ++n)
        if (products.works) put(c[n], row + 16 * n);
    };
    int row = 0;
#pragma unroll 1
    for (; row + 64 <= l.table_rows; row += 64) make(row, std::integral_constant<int, 4>());
    if (row + 32 <= l.table_rows) {
      make(row, std::integral_constant<int, 2>());
      row += 32;
    }
    if (row < l.table_rows) make(row, std::integral_constant<int, 1>());
  } else {
#pragma unroll 2
    for (int row = 0; row < l.table_rows; row += 16) {
      float c[2][4] = {};
      for (int set = first; set < first + sets; ++set) {
        const std::uint32_t table =
            at_slots<Size>(tables + products.offsets.b_rows, set * l.table_rows + row);
        const bool from_q = set == 0 && p.stage.first_from_q;
#pragma unroll
        for (int i = 0; i < Size / 16; ++i) {
          std::uint32_t b[4];
          ldmatrix_x4(b, next_columns<Size>(table, i));
          FragmentA<T> a = q.k[i];
          if (!from_q) ldmatrix_x4(a.r, next_columns<Size>(own_k, i));
          mma_pair<T>(c[0], c[1], a, b);
        }
      }
      put(c, row);
    }
  }
}

/// What the backward walk needs of the forward one, kept lane by lane: clamped position, score, and
/// a slope for each set.
template <int Sets>
struct ScratchLine {
  static constexpr int kNumbers = kScratchNumbers + Sets;
  float* data;  // this warp's, at this lane

  __device__ float& at(int place, int number) const {
    return data[(place * kNumbers + number) * 32];
  }
  /// What a walk has found of one entry; returns the vector's as it is to be used.
  __device__ float put(int place, int set, float position, int, float score, float slope,
                       float vector) const {
    if (set == 0) {
      at(place, 0) = position;
      at(place, 1) = score;
    }
    at(place, kScratchNumbers + set) = slope;
    return vector;
  }
  __device__ void finish(const LineWalk&, const axis_vectors::AxisLines&) const {}
};

/// The gates' numbers of one head.
struct Gates {
  float scale, offset;

  __device__ Gates(const axis_vectors::Params& p, int head)
      : scale(per_head(p.gate_scale, head, 1.0F / sqrtf(p.geometry.head_size))),
        offset(per_head(p.gate_offset, head, 0.0F)) {}
  __device__ float operator()(float score) const { return gate_of(scale * score + offset); }
};

/// A lane's shares of the gates' gradients.
struct GateSums {
  float scale = 0.0F, offset = 0.0F;
};

}  // namespace sape2::kernels::cuda::head
