#pragma once

#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"

/// Walks along lines of any length and span, for any number of sets.
namespace sape2::kernels::cuda::head {

/// Steps of a walk taken together, so that their loads do not wait for each other.
inline constexpr int kStepsAtOnce = 4;

/// Vectors of this lane's patch and axis from scores and table values; `to` may be `scores`.
/// `scratch_line` gets what the backward pass needs.
template <class Saved>
__device__ void walk_line(const LineWalk& walk, const axis_vectors::AxisLines& axis,
                          const Gates& gates, const float* scores, const float* values, float* to,
                          int set, Saved& scratch_line) {
  const int origin = axis.origin;
  const float low = -origin, high = axis.positions - 1 - origin;
  float sum = 0.0F;
#pragma unroll 1
  for (int first = 0; first < walk.steps; first += kStepsAtOnce) {
    int m[kStepsAtOnce];
    float score[kStepsAtOnce], gate[kStepsAtOnce], free[kStepsAtOnce], position[kStepsAtOnce];
    float weight[kStepsAtOnce], below[kStepsAtOnce], slope[kStepsAtOnce];
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      m[i] = walk.place(min(first + i, walk.steps - 1));
      score[i] = scores[m[i]];
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) gate[i] = gates(score[i]);
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      sum = (first + i == walk.restart ? 0.0F : sum) + gate[i];
      free[i] = walk.forward(first + i) ? sum : -sum;
      position[i] = clamped(free[i], low, high);
      const TablePlace at(position[i], origin);
      weight[i] = at.weight;
      below[i] = values[at.row];
      slope[i] = values[at.row + 1] - below[i];
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      if (first + i >= walk.steps) break;
      const float value = weight[i] == 0.0F ? below[i] : fmaf(weight[i], slope[i], below[i]);
      to[m[i]] =
          scratch_line.put(m[i], set, position[i], origin, score[i],
                           free[i] != position[i] || weight[i] == 0.0F ? 0.0F : slope[i], value);
    }
  }
  if (walk.is_patch) {
    if (walk.between)
      to[walk.own] = scratch_line.put(walk.own, set, 0.0F, origin, 0.0F, 0.0F, values[origin]);
  } else {
    for (int m = 0; m < walk.length; ++m) to[m] = 0.0F;
  }
}

/// The gradients of one patch's table values along one axis. Neighbours on a walk have positions at
/// most one apart, so two sums suffice; they are written at every step, and what is written last
/// stays. Only the row of position 0 is met by both parts of a walk.
template <class T>
struct TableBins {
  int at = -16;  // the sums belong to rows `at` and `at + 1`
  float lower = 0.0F, upper = 0.0F;

  /// `begin`: what row `centre` has got before.
  __device__ void add(T* bins, const TablePlace& place, float d, int centre, float begin) {
    const int moved = place.row - at;
    const float entered = place.row == centre ? begin : 0.0F;
    const float low = moved == 0 ? lower : moved == 1 ? upper : entered;
    const float high = moved == 0 ? upper : moved == -1 ? lower : 0.0F;
    at = place.row;
    lower = fmaf(-place.weight, d, low + d);
    upper = fmaf(place.weight, d, high);
    bins[at] = narrow<T>(lower);
    bins[at + 1] = narrow<T>(upper);
  }
};

/// The backward pass along this lane's line: gradients of vectors to those of table values, into
/// `bins`, and of scores, added to the patch's row of the square in units of the logits' scale.
template <class T, int Sets>
__device__ void walk_line_backward(const LineWalk& walk, const Layout& l,
                                   const axis_vectors::AxisLines& axis, bool along_y,
                                   const Gates& gates, float logit_scale,
                                   const float* const (&gradients)[Sets],
                                   const ScratchLine<Sets>& scratch_line, T* const (&bins)[Sets],
                                   T* row, int slot, GateSums& sums) {
  const int origin = axis.origin, centre = walk.between ? origin : -1;
  const float unit = gates.scale / logit_scale;
  const int column = l.column_of(slot);
  T* const on_line = row + (along_y ? column : slot - column);
  const int stride = along_y ? l.row_width : 1;
  TableBins<T> table[Sets];
  float centre_sum[Sets] = {};
  float sum = 0.0F, own_gradient = 0.0F;
  const auto add_own = [&] {
    if (!walk.between) return;
#pragma unroll
    for (int set = 0; set < Sets; ++set) {
      table[set].add(bins[set], TablePlace(0.0F, origin), gradients[set][walk.own], -1, 0.0F);
      centre_sum[set] = table[set].lower;
      table[set].at = -16;
    }
  };
#pragma unroll 1
  for (int last = walk.steps - 1; last >= 0; last -= kStepsAtOnce) {
    int m[kStepsAtOnce];
    float numbers[kStepsAtOnce][kScratchNumbers + Sets], d[kStepsAtOnce][Sets], dt[kStepsAtOnce];
    T before[kStepsAtOnce];
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      m[i] = walk.place(max(last - i, 0));
#pragma unroll
      for (int n = 0; n < kScratchNumbers + Sets; ++n) numbers[i][n] = scratch_line.at(m[i], n);
#pragma unroll
      for (int set = 0; set < Sets; ++set) d[i][set] = gradients[set][m[i]];
      before[i] = on_line[m[i] * stride];
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      const float gate = gates(numbers[i][1]);
      dt[i] = gate * (1.0F - gate);
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      const int step = last - i;
      if (step < 0) break;
      if (walk.between && step + 1 == walk.restart) {
        sum = 0.0F;
        add_own();
      }
      const TablePlace place(numbers[i][0], origin);
#pragma unroll
      for (int set = 0; set < Sets; ++set) {
        sum += d[i][set] * numbers[i][kScratchNumbers + set];
        table[set].add(bins[set], place, d[i][set], centre, centre_sum[set]);
      }
      dt[i] *= walk.forward(step) ? sum : -sum;
      sums.scale += dt[i] * numbers[i][1];
      sums.offset += dt[i];
      if (m[i] == walk.own) {
        own_gradient = unit * dt[i];
      } else {
        on_line[m[i] * stride] = narrow<T>(fmaf(unit, dt[i], widen(before[i])));
      }
    }
  }
  // The last patch of a line has nobody to its right.
  if (walk.is_patch && walk.restart == 0) add_own();
  // Both axes of a patch meet at the patch itself.
  own_gradient += __shfl_xor_sync(0xffffffffu, own_gradient, 16);
  if (!along_y && walk.is_patch && !walk.between)
    row[slot] = narrow<T>(widen(row[slot]) + own_gradient);
}

}  // namespace sape2::kernels::cuda::head
