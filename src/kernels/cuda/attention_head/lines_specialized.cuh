#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"

/// The walks of attention_head/lines_generic.cuh where the compiler knows how long lines can be:
/// entry by entry in the order of the line, all at once, so that nothing but the running sums waits
/// for anything. Where the grid is not exact, entries behind a line's end are made too, and count
/// for nothing.
namespace sape2::kernels::cuda::head {

/// Entries of this lane's line that are a patch's, as a compiled grid knows them.
template <GridKind Grid>
__device__ int entries_of(const LineWalk& walk) {
  return !walk.is_patch ? 0 : is_exact(Grid) ? longest_line(Grid) : walk.length;
}

/// The warp's sixteen rows of gradients of table values become 0.
template <class T>
__device__ void clear_bins(const Padded<T>& bins, int own_row) {
  for (int i = threadIdx.x % 32; i < bins.pitch; i += 32)  // 16-byte chunks
    *reinterpret_cast<uint4*>(bins.data + own_row * bins.pitch + i * 16) = {};
}

/// This lane's gradients of vectors.
template <GridKind Grid>
__device__ void read_gradients(float (&d)[longest_line(Grid)], const LineWalk& walk,
                               const float* from) {
  const int entries = entries_of<Grid>(walk);
#pragma unroll
  for (int m = 0; m < longest_line(Grid); ++m) d[m] = m < entries ? from[m] : 0.0F;
}

/// One slot's row as operands of products, as far as this lane goes: 16-byte n8 fragment t and, in
/// heads of 64, t + 4. Both operands of a product take the head's columns in this order.
template <int Size>
struct LineRow {
  std::uint32_t words[Size / 8];

  __device__ LineRow(std::uint32_t tile, int slot) {
    const Lane lane;
    // Rows of a grid column begin in one bank: every second one is read the other way round.
    const int turned = Size == 64 ? (lane.g ^ slot >> 2) & 1 : 0;
#pragma unroll
    for (int half = 0; half < Size / 32; ++half)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[4 * half]), "=r"(words[4 * half + 1]), "=r"(words[4 * half + 2]),
                     "=r"(words[4 * half + 3])
                   : "r"(tile + LdmatrixOffsets<Size>::offset(slot, lane.t + 4 * (half ^ turned))));
    if constexpr (Size == 64) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t first = words[i];
        words[i] = turned ? words[4 + i] : first;
        words[4 + i] = turned ? first : words[4 + i];
      }
    }
  }
};

/// q·k along lines, each made by one warp for everybody, so wait for all warps afterwards.
/// `queries`, `keys`: where the tiles begin; `line_of(slot)` finds any slot's line.
template <class T, int Size, class LineOf>
__device__ void share_line_scores(const Plan& plan, const RowsAsA<T, Size>& own_q,
                                  std::uint32_t queries, std::uint32_t keys, LineOf line_of) {
  const int warp = threadIdx.x / 32;
  const int rows = plan.geometry.rows, cols = plan.geometry.cols, width = plan.layout.row_width;
  const Lane at;
  const bool own_rows = width == 16;  // a warp's slots are a grid row
  float c[2][4];
  if (own_rows) {
    multiply(c, own_q, at_slots<Size>(keys + LdmatrixOffsets<Size>().b_rows, warp * 16));
    put_row_scores(c, line_of(warp * 16 + at.g), line_of(warp * 16 + at.g + 8));
  }
#pragma unroll 1
  for (int line = warp; line < (own_rows ? cols : cols + rows); line += plan.layout.warps) {
    const bool along_y = line < cols;
    const int first = along_y ? line : (line - cols) * width, step = along_y ? width : 1;
    const int length = along_y ? rows : cols, entry = along_y ? width : 0;
    const auto row = [&](std::uint32_t tile, int half) {
      return LineRow<Size>(tile, first + min(at.g + 8 * half, length - 1) * step);
    };
    const LineRow<Size> line_q[2] = {row(queries, 0), row(queries, 1)};
    const LineRow<Size> line_k[2] = {row(keys, 0), row(keys, 1)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[half][e] = 0.0F;
#pragma unroll
      for (int i = 0; i < Size / 8; i += 2)
        mma(c[half],
            FragmentA<T>{line_q[0].words[i], line_q[1].words[i], line_q[0].words[i + 1],
                         line_q[1].words[i + 1]},
            FragmentB<T>{line_k[half].words[i], line_k[half].words[i + 1]});
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int own = at.g + e % 4 / 2 * 8, other = e / 4 * 8 + 2 * at.t + e % 2;
      if (own < length && other < length)
        line_of(first + own * step)[entry + other] = c[e / 4][e % 4];
    }
  }
}

/// Vectors of this lane's patch and axis, in the scores' place; 0 for a prefix token.
template <GridKind Grid, Span Along, class Saved>
__device__ void walk_specialized_line(const LineWalk& walk, const axis_vectors::AxisLines& axis,
                                      const Gates& gates, float* line, const float* values,
                                      Saved& saved) {
  constexpr int kLength = longest_line(Grid);
  const int entries = entries_of<Grid>(walk), origin = axis.origin;
  const float low = -origin, high = axis.positions - 1 - origin;
  float score[kLength], position[kLength];
#pragma unroll
  for (int m = 0; m < kLength; ++m) {
    score[m] = m < entries ? line[m] : 0.0F;
    position[m] = gates(score[m]);
    if (!is_exact(Grid) && Along == Span::suffix && m >= entries) position[m] = 0.0F;
  }
  if constexpr (Along == Span::suffix) {
#pragma unroll
    for (int m = kLength - 2; m >= 0; --m) position[m] += position[m + 1];
  } else {
    float right = 0.0F, left = 0.0F;
    float gate[kLength];
#pragma unroll
    for (int m = 0; m < kLength; ++m) {
      gate[m] = position[m];
      right = m > walk.own ? right + gate[m] : 0.0F;
      position[m] = right;
    }
#pragma unroll
    for (int m = kLength - 1; m >= 0; --m) {
      left = m < walk.own ? left - gate[m] : 0.0F;
      position[m] += left;
    }
  }
#pragma unroll
  for (int m = 0; m < kLength; ++m) {
    const float at = clamped(position[m], low, high);
    const TablePlace place(at, origin);
    const float below = values[place.row], slope = values[place.row + 1] - below;
    const float value = saved.put(m, 0, at, origin, score[m],
                                  at != position[m] || place.weight == 0.0F ? 0.0F : slope,
                                  place.weight == 0.0F ? below : fmaf(place.weight, slope, below));
    if (is_exact(Grid)) {
      line[m] = value;
    } else if (m < walk.length) {
      line[m] = walk.is_patch ? value : 0.0F;
    }
  }
}

/// A line of scratch memory, read ahead.
template <int Length>
struct SpecializedScratchLine {
  float positions[Length], scores[Length], slopes[Length];

  __device__ void read(const ScratchLine<1>& saved) {
#pragma unroll
    for (int m = 0; m < Length; ++m) {
      positions[m] = saved.at(m, 0);
      scores[m] = saved.at(m, 1);
      slopes[m] = saved.at(m, kScratchNumbers);
    }
  }
  __device__ float slope(int m) const {
    return slopes[m];
  }
  __device__ float score(int m) const {
    return scores[m];
  }
  __device__ TablePlace place(int m, int origin) const {
    return {positions[m], origin};
  }
};

/// The backward pass: gradients `d` of vectors to those of table values, into `bins`, and of
/// scores, added to the patch's row of the square in units of the logits' scale. Positions never
/// fall along the line (Span::between) or against it (Span::suffix), so the table values' gradients
/// are two running sums, written at every entry; what is written last stays.
template <class T, GridKind Grid, Span Along, class Saved>
__device__ void walk_specialized_line_backward(const LineWalk& walk, const Layout& l,
                                               const axis_vectors::AxisLines& axis, bool along_y,
                                               const Gates& gates, float logit_scale,
                                               const float (&d)[longest_line(Grid)],
                                               const Saved& saved, T* bins, T* row, int slot,
                                               GateSums& sums) {
  constexpr int kLength = longest_line(Grid);
  const int entries = entries_of<Grid>(walk);
  constexpr bool kSuffix = Along == Span::suffix;
  const float unit = gates.scale / logit_scale;
  const int column = l.column_of(slot);
  T* const on_line = row + (along_y ? column : slot - column);
  const int stride = along_y ? l.row_width : 1;
  float dt[kLength];
  float sum = 0.0F;
#pragma unroll
  for (int m = 0; m < kLength; ++m) {
    if (kSuffix || m < walk.own) sum = fmaf(d[m], saved.slope(m), sum);
    dt[m] = kSuffix ? sum : m < walk.own ? -sum : 0.0F;
  }
  if constexpr (!kSuffix) {
    sum = 0.0F;
#pragma unroll
    for (int m = kLength - 1; m >= 0; --m) {
      sum = fmaf(d[m], saved.slope(m), sum);
      if (m > walk.own) dt[m] = sum;
    }
  }
  // Both axes of a patch meet at the patch itself; there Span::between has no gradient.
  float own_gradient = 0.0F;
#pragma unroll
  for (int m = 0; m < kLength; ++m) {
    const float gate = gates(saved.score(m));
    dt[m] *= gate * (1.0F - gate);
    if (!is_exact(Grid) && m >= entries) continue;
    sums.scale += dt[m] * saved.score(m);
    sums.offset += dt[m];
    T& place = on_line[m * stride];
    const T with_gate = narrow<T>(fmaf(unit, dt[m], widen(place)));
    if (m != walk.own) place = with_gate;
    if (m == walk.own) own_gradient = unit * dt[m];
  }

  int at = -16;  // the sums belong to rows `at` and `at + 1`
  float lower = 0.0F, upper = 0.0F;
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    const int m = kSuffix ? kLength - 1 - i : i;
    const TablePlace place = saved.place(m, axis.origin);
    const bool stays = place.row == at, moves_on = place.row == at + 1;
    // Rounded positions may be a little more than one apart.
    if (i > 0 && !stays && !moves_on) bins[at + 1] = narrow<T>(upper);
    at = place.row;
    lower = fmaf(-place.weight, d[m], (stays ? lower : moves_on ? upper : 0.0F) + d[m]);
    upper = fmaf(place.weight, d[m], stays ? upper : 0.0F);
    bins[at] = narrow<T>(lower);
  }
  bins[at + 1] = narrow<T>(upper);
  if constexpr (kSuffix) {
    own_gradient += __shfl_xor_sync(0xffffffffu, own_gradient, 16);
    __syncwarp();
    if (!along_y && walk.is_patch) row[slot] = narrow<T>(widen(row[slot]) + own_gradient);
  }
}

}  // namespace sape2::kernels::cuda::head
