#pragma once

#include "kernels/cuda/stage_one.cuh"

/// Stage 1, a lane a patch: it walks along the patch's line, away from where positions begin, so
/// that positions are running sums.
namespace sape2::kernels::cuda {

/// Span::suffix: from the end of the line, by the first lane of a patch's two. Span::between: from
/// the patch to the right by the first, to the left by the second, where positions are negative.
struct PatchWalk {
  int first, step, count;
  float sign;

  __device__ PatchWalk(Span span, int length, int own, bool second) {
    const bool between = span == Span::between;
    first = !between ? length - 1 : second ? own - 1 : own + 1;
    step = between && !second ? 1 : -1;
    count = !between ? (second ? 0 : length) : second ? own : length - 1 - own;
    sign = second ? -1.0F : 1.0F;
  }
  __device__ int place(int index) const { return first + step * index; }
};

struct Gates {
  float scale, offset;

  __device__ Gates(const StageOneParams& p, int head)
      : scale(per_head(p.gate_scale, head, 1.0F / sqrtf(p.geometry.head_size))),
        offset(per_head(p.gate_offset, head, 0.0F)) {}
  template <class T>
  __device__ float at(float score) const {
    return sigmoid<T>(fmaf(scale, score, offset));
  }
};

/// Steps of a walk taken together, so that their loads do not wait for each other.
inline constexpr int kStepsAtOnce = 4;

/// Calls use(place, below, weight, value, slope, number) along a walk: the position lies `weight`
/// above row `below` of the patch's window of table values `z`, where that row has `value` and the
/// next one `slope` more; `number` is the place's in `d`, read ahead.
template <class T, class Use>
__device__ void walk_along(const PatchWalk& walk, const AxisLines& axis, int window,
                           const Gates& gates, const float* scores, const float* z, const float* d,
                           Use use) {
  float sum = 0.0F;
#pragma unroll 1
  for (int first = 0; first < walk.count; first += kStepsAtOnce) {
    int place[kStepsAtOnce];
    float gate[kStepsAtOnce], number[kStepsAtOnce];
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      place[i] = walk.place(min(first + i, walk.count - 1));
      gate[i] = scores[place[i]];
      number[i] = d[place[i]];
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) gate[i] = gates.at<T>(gate[i]);
    int below[kStepsAtOnce];
    float weight[kStepsAtOnce], value[kStepsAtOnce], slope[kStepsAtOnce];
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      sum += gate[i];
      const Between where(clamped_position(walk.sign * sum, axis), axis, window);
      below[i] = where.below;
      weight[i] = where.weight;
      value[i] = z[where.below];
      slope[i] = z[where.above] - value[i];
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i)
      if (first + i < walk.count) use(place[i], below[i], weight[i], value[i], slope[i], number[i]);
  }
}

/// q·k of patches first … first+15 of a group with all patches of their line, which begins at row
/// `begin`, as scores[row][place]. All are summed in one order.
template <class T, int HeadSize>
__device__ void note_scores(float* scores, int pitch, const AxisLines& axis, const Tile<T>& q,
                            const Tile<T>& k, int first, int begin) {
  const Lane lane;
  FragmentA<T> a[HeadSize / 16];
#pragma unroll
  for (int i = 0; i < HeadSize / 16; ++i) a[i] = load_a(q, first, 16 * i);
#pragma unroll 2
  for (int column = 0; column < axis.line_rows; column += 16) {
    float c[2][4] = {};
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      FragmentB<T> b[2];
      load_b_rows(b, k, begin + column, 16 * i);
      multiply_add(c[0], a[i], b[0]);
      multiply_add(c[1], a[i], b[1]);
    }
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int place = column + piece * 8 + 2 * lane.t + e % 2;
        if (place < axis.length) scores[(lane.g + e / 2 * 8) * pitch + place] = c[piece][e];
      }
  }
}

/// Gradients of one patch's table values, from one walk. Neighbours on a walk have positions at
/// most one apart, so two sums suffice: those of table rows `at` and `at + 1`. Position 0 of
/// Span::between is met by both walks of a patch: what belongs to it is kept in `centre`.
template <class T>
struct TableBins {
  T* bins;         // the patch's row
  int centre_row;  // −1: none
  int rows;        // this walk writes rows 0 … rows−1
  bool upwards;
  int at = -8;  // at first none
  float lower = 0.0F, upper = 0.0F, centre = 0.0F;

  __device__ void add(int below, float weight, float d) {
    const int moved = below - at;
    if (moved != 0) {
      put(upwards ? at : at + 1, upwards ? lower : upper);
      const bool next = moved == (upwards ? 1 : -1);
      const float carried = upwards ? upper : lower;
      if (!next) put(upwards ? at + 1 : at, carried);
      lower = next && upwards ? carried : 0.0F;
      upper = next && !upwards ? carried : 0.0F;
      at = below;
    }
    const float part = weight * d;
    lower += d - part;
    upper += part;
  }
  __device__ void finish() {
    put(at, lower);
    put(at + 1, upper);
  }
  __device__ void put(int row, float sum) {
    if (row == centre_row) centre = sum;
    if (row != centre_row && unsigned(row) < unsigned(rows)) bins[row] = narrow<T>(sum);
  }
};

/// A lane's shares of the gates' gradients.
struct GateSums {
  float scale = 0.0F, offset = 0.0F;
};

/// Back along a walk: gradients of positions become those of gates and of scores.
template <class T>
__device__ void back_along(const PatchWalk& walk, bool walks, const Gates& gates,
                           const float* scores, const float* dpositions, T* dscores,
                           GateSums& sums) {
  if (!walks) return;
  float sum = 0.0F;
#pragma unroll 1
  for (int last = walk.count - 1; last >= 0; last -= kStepsAtOnce) {
    int place[kStepsAtOnce];
    float score[kStepsAtOnce], gate[kStepsAtOnce], d[kStepsAtOnce];
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      place[i] = walk.place(max(last - i, 0));
      score[i] = scores[place[i]];
      d[i] = dpositions[place[i]];
    }
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) gate[i] = gates.at<T>(score[i]);
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      if (last - i < 0) break;
      sum += d[i];
      const float dt = walk.sign * sum * gate[i] * (1.0F - gate[i]);
      sums.scale = fmaf(dt, score[i], sums.scale);
      sums.offset += dt;
      dscores[place[i]] = narrow<T>(gates.scale * dt);
    }
  }
}

}  // namespace sape2::kernels::cuda
