#pragma once

#include "kernels/cuda/head_attention.h"
#include "kernels/cuda/head_matrix.cuh"

/// Stage 1 of a warp's 16 patches. Scores along lines are read off q·k; then a lane takes one patch
/// and one axis and walks along that line: lanes 0–15 rows of the grid, lanes 16–31 columns.
namespace sape2::kernels::cuda {

/// The order in which a lane walks: away from where positions begin, so that positions are running
/// sums. Span::suffix: from the end of the line; Span::between: from the patch to the right, then
/// from the patch to the left.
struct LineWalk {
  int length = 0, own = 0;
  int steps = 0;  // 0 for a slot without a patch
  int turn = 0;   // the step at which sums begin anew
  bool between, is_patch = false;

  __device__ LineWalk(const HeadLayout& l, const Geometry& g, Span span, int slot, int axis)
      : between(span == Span::between) {
    const int y = slot / l.row_width, x = slot % l.row_width;
    length = axis ? g.rows : g.cols;
    if (y >= g.rows || x >= g.cols) return;
    is_patch = true;
    own = axis ? y : x;
    steps = between ? length - 1 : length;
    turn = between ? length - 1 - own : 0;
  }
  __device__ bool forward(int step) const { return !between || step < turn; }
  __device__ int place(int step) const {
    return between && step < turn ? own + 1 + step : (between ? length - 2 : length - 1) - step;
  }
};

/// Where a position lies between two table rows. A position that is no number gets the first row
/// and keeps a weight that is none.
struct TablePlace {
  int below, above;
  float weight;
  bool clamped;

  __device__ TablePlace(float position, float low, float high) {
    clamped = position < low || position > high;
    const float p = position < low ? low : position > high ? high : position;
    const float down = floorf(p);
    weight = p - down;
    below = static_cast<int>(fminf(fmaxf(down, low), high) - low);
    above = weight != 0.0F ? below + 1 : below;
  }
};

__device__ inline float gate_of(float x) {
  return __fdividef(1.0F, 1.0F + __expf(-x));
}

/// A head's tables of all sets, rounded, below each other.
template <class T, int Size>
__device__ void load_tables(const HeadForward& p, int head, unsigned char* shared) {
  const auto& l = p.layout;
  const int head_size = p.stage.geometry.head_size;
  for (int set = 0; set < p.stage.sets; ++set) {
    const Tile<T> tile{shared + set * Tile<T>::bytes(l.table_rows, Size), l.table_rows, Size};
    for (int i = threadIdx.x; i < l.table_rows * Size; i += blockDim.x) {
      const int row = i / Size, column = i % Size, axis = row >= l.second_table;
      const auto& lines = p.stage.axes[axis];
      const int own = row - axis * l.second_table;
      float value = 0.0F;
      if (own < lines.positions && column < head_size)
        value =
            p.stage.tables[set][axis][head * p.stage.table_head_stride +
                                      std::int64_t(lines.table_first + own) * head_size + column];
      tile.at(row, column) = narrow<T>(value);
    }
  }
}

/// q·k of the warp's patches with the patches of their grid rows and columns.
template <class T, int Size>
__device__ void line_scores(const HeadLayout& l, const OwnSlots& own, const RowsAsA<T, Size>& q,
                            const Tile<T>& k, float* lines) {
  const Lane lane;
  const bool diagonal = lane.t == lane.g / 2;
#pragma unroll 2
  for (int slot = 0; slot < l.grid_slots; slot += 16) {
    float c[2][4];
    multiply(c, q, k, slot);
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const EightSlots keys(l, slot + 8 * piece);
      if (keys.y < 0) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* const line = lines + (lane.g + 8 * half) * l.line_pitch;
        if (own.eight[half].y == keys.y) {
          line[keys.x + 2 * lane.t] = c[piece][2 * half];
          line[keys.x + 2 * lane.t + 1] = c[piece][2 * half + 1];
        }
        if (own.eight[half].x == keys.x && diagonal)
          line[l.row_width + keys.y] = lane.g % 2 ? c[piece][2 * half + 1] : c[piece][2 * half];
      }
    }
  }
}

/// a·table of the warp's patches, summed over the sets from `first` on, as values[row][table row].
template <class T, int Size>
__device__ void table_values(const HeadForward& p, const unsigned char* tables, int first, int sets,
                             const RowsAsA<T, Size>& q, const Tile<T>& k, int own_row,
                             float* values) {
  const Lane lane;
  const auto& l = p.layout;
  for (int row = 0; row < l.table_rows; row += 16) {
    float c[2][4] = {};
    for (int set = first; set < first + sets; ++set) {
      const Tile<T> table{
          const_cast<unsigned char*>(tables) + set * Tile<T>::bytes(l.table_rows, Size),
          l.table_rows, Size};
      const bool from_q = set == 0 && p.stage.first_from_q;
#pragma unroll
      for (int i = 0; i < Size / 16; ++i) {
        FragmentB<T> b[2];
        load_b_rows(b, table, row, 16 * i);
        const FragmentA<T> a = from_q ? q.k[i] : load_a(k, own_row, 16 * i);
        multiply_add(c[0], a, b[0]);
        multiply_add(c[1], a, b[1]);
      }
    }
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        values[(lane.g + e / 2 * 8) * l.value_pitch + row + piece * 8 + 2 * lane.t + e % 2] =
            c[piece][e];
  }
}

/// What the backward walk needs of the forward one, kept lane by lane.
struct KeptLine {
  float* data;  // this warp's, at this lane
  int numbers;  // position, score, a slope for each set

  __device__ float& at(int place, int number) const {
    return data[(place * numbers + number) * 32];
  }
};

/// The gates' numbers of one head.
struct Gates {
  float scale, offset;

  __device__ Gates(const StageOneParams& p, int head)
      : scale(per_head(p.gate_scale, head, 1.0F / sqrtf(p.geometry.head_size))),
        offset(per_head(p.gate_offset, head, 0.0F)) {}
  __device__ float operator()(float score) const { return gate_of(scale * score + offset); }
};

/// Vectors of this lane's patch and axis from scores and table values; `to` may be `scores`. With
/// `kept`, also what the way back needs.
template <bool Keep>
__device__ void walk_line(const LineWalk& walk, const AxisLines& axis, const Gates& gates,
                          const float* scores, const float* values, float* to, int set,
                          const KeptLine& kept) {
  const float low = -axis.origin, high = axis.positions - 1 - axis.origin;
  float sum = 0.0F;
  // Read before the first write, which may stand in its place.
#pragma unroll 2
  for (int step = 0; step < walk.steps; ++step) {
    const int m = walk.place(step);
    if (step == walk.turn) sum = 0.0F;
    const float score = scores[m];
    sum += gates(score);
    const float position = walk.forward(step) ? sum : -sum;
    const TablePlace at(position, low, high);
    const float above = values[at.above], below = values[at.below];
    to[m] = at.weight * above + (1.0F - at.weight) * below;
    if constexpr (Keep) {
      if (set == 0) {
        kept.at(m, 0) = position;
        kept.at(m, 1) = score;
      }
      kept.at(m, 2 + set) = at.clamped ? 0.0F : above - below;
    }
  }
  if (walk.is_patch) {
    if (walk.between) to[walk.own] = values[axis.origin];
  } else {
    for (int m = 0; m < walk.length; ++m) to[m] = 0.0F;
  }
}

/// The gradients of one patch's table values along one axis. Neighbours on a walk have positions at
/// most one apart, so two sums suffice, and each table row is written once: when the walk has left
/// it. Only the row of position 0 may be met by both parts of a walk; its sum waits for the end.
template <class T>
struct TableBins {
  int at = -16;  // `sum` belongs to rows `at` and `at + 1`
  float sum[2] = {0.0F, 0.0F};
  float centre_sum = 0.0F;

  __device__ void put(const Tile<T>& bins, int row, int first, int rows, int centre, int index,
                      float value) {
    if (index == centre) {
      centre_sum += value;
    } else if (index >= 0 && index < rows) {
      bins.at(row, first + index) = narrow<T>(value);
    }
  }
  __device__ void add(const Tile<T>& bins, int row, int first, int rows, int centre,
                      const TablePlace& place, float d) {
    if (place.below != at) {
      const bool up = place.below == at + 1, down = place.below == at - 1;
      if (!down) put(bins, row, first, rows, centre, at, sum[0]);
      if (!up) put(bins, row, first, rows, centre, at + 1, sum[1]);
      const float lower = up ? sum[1] : 0.0F, upper = down ? sum[0] : 0.0F;
      sum[0] = lower;
      sum[1] = upper;
      at = place.below;
    }
    sum[0] += (1.0F - place.weight) * d;
    sum[1] += place.weight * d;
  }
  __device__ void finish(const Tile<T>& bins, int row, int first, int rows, int centre, float own) {
    put(bins, row, first, rows, centre, at, sum[0]);
    put(bins, row, first, rows, centre, at + 1, sum[1]);
    if (centre >= 0) bins.at(row, first + centre) = narrow<T>(centre_sum + own);
  }
};

/// A lane's shares of the gates' gradients.
struct GateSums {
  float scale = 0.0F, offset = 0.0F;
};

/// The way back along this lane's line: gradients of vectors to those of table values, into `bins`,
/// and of scores, added to the warp's rows of `square` in units of the logits' scale.
template <class T, int Sets>
__device__ void walk_line_back(const LineWalk& walk, const HeadLayout& l, const AxisLines& axis,
                               int axis_index, const Gates& gates, float logit_scale,
                               const float* const (&gradients)[Sets], const KeptLine& kept,
                               const Tile<T> (&bins)[Sets], const Square<T>& square, int slot,
                               GateSums& sums) {
  const float low = -axis.origin, high = axis.positions - 1 - axis.origin;
  const int first_bin = axis_index ? l.second_table : 0;
  const int centre = walk.between ? axis.origin : -1;
  const float unit = gates.scale / logit_scale;
  const int row_begin = slot / l.row_width * l.row_width, column = slot % l.row_width;
  TableBins<T> table[Sets];
  float sum = 0.0F, own_gradient = 0.0F;
  float next[2 + Sets] = {};
  const auto fetch = [&](int step) {
    const int m = walk.place(step);
#pragma unroll
    for (int i = 0; i < 2 + Sets; ++i) next[i] = kept.at(m, i);
  };
  if (walk.steps > 0) fetch(walk.steps - 1);
#pragma unroll 1
  for (int step = walk.steps - 1; step >= 0; --step) {
    const int m = walk.place(step);
    const float position = next[0], score = next[1];
    float slope[Sets];
#pragma unroll
    for (int set = 0; set < Sets; ++set) slope[set] = next[2 + set];
    if (step > 0) fetch(step - 1);
    const TablePlace place(position, low, high);
    float dp = 0.0F;
#pragma unroll
    for (int set = 0; set < Sets; ++set) {
      const float d = gradients[set][m];
      dp += d * slope[set];
      table[set].add(bins[set], slot, first_bin, axis.positions, centre, place, d);
    }
    sum = step + 1 == walk.turn ? dp : sum + dp;
    const float gate = gates(score);
    const float dt = (walk.forward(step) ? sum : -sum) * gate * (1.0F - gate);
    sums.scale += dt * score;
    sums.offset += dt;
    if (m == walk.own) {
      own_gradient = unit * dt;
    } else {
      T& place_in_square = square.at(slot, axis_index ? m * l.row_width + column : row_begin + m);
      place_in_square = narrow<T>(widen(place_in_square) + unit * dt);
    }
  }
  if (walk.is_patch) {
#pragma unroll
    for (int set = 0; set < Sets; ++set)
      table[set].finish(bins[set], slot, first_bin, axis.positions, centre,
                        gradients[set][walk.own]);
  }
  // Both axes of a patch meet at the patch itself.
  own_gradient += __shfl_xor_sync(0xffffffffu, own_gradient, 16);
  if (axis_index == 0 && walk.is_patch && !walk.between)
    square.at(slot, slot) = narrow<T>(widen(square.at(slot, slot)) + own_gradient);
}

}  // namespace sape2::kernels::cuda
