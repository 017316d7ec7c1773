#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/lines.h"
#include "kernels/cuda/mma.cuh"

/// The pieces of stage 1: scores along a line, gates, positions, table values. One warp works on 16
/// patches; one lane walks along one patch's line, so every sum has one order.
namespace sape2::kernels::cuda {

/// The reachable rows of one head's table.
struct TableView {
  const float* data;
  int rows, head_size;

  __device__ float at(int row, int column) const {
    return row < rows && column < head_size ? data[row * head_size + column] : 0.0F;
  }
  /// Two neighbours of a row, column even.
  __device__ float2 pair_at(int row, int column) const {
    const bool in_pairs = head_size % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % 8 == 0;
    if (!in_pairs) return make_float2(at(row, column), at(row, column + 1));
    const auto pair = *reinterpret_cast<const float2*>(data + min(row, rows - 1) * head_size +
                                                       min(column, head_size - 2));
    return row < rows && column < head_size ? pair : make_float2(0.0F, 0.0F);
  }
  /// B = tableᵀ: its columns are table rows row … row+7.
  __device__ FragmentB<float> by_rows(int row, int column) const {
    const Lane lane;
    return {{pair_at(row + lane.g, column + 2 * lane.t),
             pair_at(row + lane.g, column + 2 * lane.t + 8)}};
  }
  /// B = table: k runs along table rows row … row+15.
  __device__ FragmentB<float> by_columns(int row, int column) const {
    const Lane lane;
    const int r = row + 2 * lane.t, c = column + lane.g;
    return {{make_float2(at(r, c), at(r + 1, c)), make_float2(at(r + 8, c), at(r + 9, c))}};
  }
};

/// A piece of A from any source of numbers, at(row, k) with row and k within the piece.
template <class T, class At>
__device__ FragmentA<T> make_a(At at) {
  const Lane lane;
  FragmentA<T> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane.g + i % 2 * 8, k = 2 * lane.t + i / 2 * 8;
    set<T>(a.r[i], at(row, k), at(row, k + 1));
  }
  return a;
}

/// With the fast units where T keeps few digits anyway.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (kIsWide<T>) {
    return 1.0F / (1.0F + expf(-x));
  } else {
    return __fdividef(1.0F, 1.0F + __expf(-x));
  }
}

/// Where a position lies between two table rows. A position that is no number gets row 0 and keeps
/// a weight that is none.
struct Between {
  int below, above;
  float weight;
  bool clamped;

  __device__ Between(float position, const AxisLines& axis) {
    const float low = -axis.origin, high = axis.positions - 1 - axis.origin;
    clamped = position < low || position > high;
    const float p = position < low ? low : position > high ? high : position;
    const float down = floorf(p);
    weight = p - down;
    below = static_cast<int>(fminf(fmaxf(down, low), high)) + axis.origin;
    above = static_cast<int>(fminf(fmaxf(ceilf(p), low), high)) + axis.origin;
  }
};

/// The warp's 16 patches, rows first … first+15 of a group, and the group's rows they share lines
/// with: those from `low` to `high`.
struct RowTile {
  int first, low, high;

  __device__ RowTile(const AxisLines& axis, int first_row) : first(first_row) {
    const int last = min(first_row + 15, axis.group * axis.length - 1);
    low = first_row / axis.length * axis.length / 16 * 16;
    high = (last / axis.length + 1) * axis.length;
  }
};

/// Of each row of a group: its token, and the row at which its line begins; in shared memory.
struct RowTokens {
  int* tokens;
  int* line_begin;

  __host__ __device__ static int bytes(const AxisLines& axis) { return 2 * axis.group_rows * 4; }
  __device__ RowTokens(const AxisLines& axis, const Geometry& g, int group, int* shared)
      : tokens(shared), line_begin(shared + axis.group_rows) {
    for (int row = threadIdx.x; row < axis.group_rows; row += kThreads) {
      tokens[row] = axis.token(g, group, row);
      line_begin[row] = row / axis.length * axis.length;
    }
    __syncthreads();
  }
};

/// q·k of the warp's patches with all patches of their lines, as scores[row][place in the line].
/// Every score goes through `change` first.
template <class T, int HeadSize, class Change>
__device__ void line_scores(const AxisLines& axis, const RowTokens& tokens, const RowTile& rows,
                            const Tile<T>& q, const Tile<T>& k, float* scores, int pitch,
                            Change change) {
  const Lane lane;
  for (int column = rows.low; column < rows.high; column += 16) {
    float c[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < HeadSize; kk += 16) {
      const auto a = load_a(q, rows.first, kk);
      FragmentB<T> b[2];
      load_b_rows(b, k, column, kk);
      multiply_add(c[0], a, b[0]);
      multiply_add(c[1], a, b[1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane.g + half * 8;
      const int line_begin = tokens.line_begin[rows.first + row];
#pragma unroll
      for (int piece = 0; piece < 2; ++piece)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int place = column + piece * 8 + 2 * lane.t + e - line_begin;
          if (place >= 0 && place < axis.length)
            scores[row * pitch + place] = change(c[piece][2 * half + e]);
        }
    }
  }
}

/// The reachable rows of a head's table as a product needs them: 16-bit types keep them, rounded,
/// in shared memory; float32 reads them where they are.
template <class T, int HeadSize>
struct TableTile {
  TableView view;
  Tile<T> tile;

  __host__ __device__ static int bytes(const AxisLines& axis) {
    return kIsWide<T> ? 0 : Tile<T>::bytes(round_up(axis.positions, 16), HeadSize);
  }
  __device__ TableTile(const TableView& table, unsigned char* shared)
      : view(table), tile{shared, round_up(table.rows, 16), HeadSize} {
    if constexpr (!kIsWide<T>) {
      constexpr int kPairs = HeadSize / 2;
#pragma unroll 8
      for (int i = threadIdx.x; i < tile.rows * kPairs; i += kThreads) {
        const float2 pair = view.pair_at(i / kPairs, i % kPairs * 2);
        *reinterpret_cast<std::uint32_t*>(&tile.at(i / kPairs, i % kPairs * 2)) =
            pack<T>(pair.x, pair.y);
      }
    }
  }

  /// a·table of the warp's patches, as values[row][reachable table row].
  __device__ void values(const RowTile& rows, const Tile<T>& a, float* values, int pitch) const {
    const Lane lane;
    FragmentA<T> fragments[HeadSize / 16];
#pragma unroll
    for (int k = 0; k < HeadSize / 16; ++k) fragments[k] = load_a(a, rows.first, 16 * k);
    for (int row = 0; row < view.rows; row += 16) {
      float c[2][4] = {};
#pragma unroll
      for (int k = 0; k < HeadSize / 16; ++k) {
        FragmentB<T> b[2];
        if constexpr (kIsWide<T>) {
          b[0] = view.by_rows(row, 16 * k);
          b[1] = view.by_rows(row + 8, 16 * k);
        } else {
          load_b_rows(b, tile, row, 16 * k);
        }
        multiply_add(c[0], fragments[k], b[0]);
        multiply_add(c[1], fragments[k], b[1]);
      }
#pragma unroll
      for (int piece = 0; piece < 2; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          values[(lane.g + e / 2 * 8) * pitch + row + piece * 8 + 2 * lane.t + e % 2] = c[piece][e];
    }
  }

  /// c += d · table, where d[row][reachable table row] belongs to the warp's patches.
  __device__ void add_product(float (&c)[HeadSize / 8][4], const float* d, int pitch) const {
    for (int row = 0; row < view.rows; row += 16) {
      const auto fragment = make_a<T>([&](int r, int k) { return d[r * pitch + row + k]; });
#pragma unroll
      for (int piece = 0; piece < HeadSize / 8; piece += 2) {
        FragmentB<T> b[2];
        if constexpr (kIsWide<T>) {
          b[0] = view.by_columns(row, piece * 8);
          b[1] = view.by_columns(row, piece * 8 + 8);
        } else {
          load_b_columns(b, tile, row, piece * 8);
        }
        multiply_add(c[piece], fragment, b[0]);
        multiply_add(c[piece + 1], fragment, b[1]);
      }
    }
  }
};

/// One patch's positions from the gates of its line, in place; `own` is its place in it.
__device__ inline void line_positions(Span span, int length, int own, float* line) {
  float sum = 0.0F;
  if (span == Span::suffix) {
#pragma unroll 4
    for (int m = length - 1; m >= 0; --m) line[m] = sum += line[m];
    return;
  }
#pragma unroll 4
  for (int m = own + 1; m < length; ++m) line[m] = sum += line[m];
  sum = 0.0F;
#pragma unroll 4
  for (int m = own - 1; m >= 0; --m) line[m] = sum -= line[m];
  line[own] = 0.0F;
}

/// Row pitches of the float32 scratch, odd so that neighbouring rows fall into different banks.
__host__ __device__ inline int line_pitch(const AxisLines& axis) {
  return axis.length | 1;
}
__host__ __device__ inline int table_pitch(const AxisLines& axis) {
  return round_up(axis.positions, 16) + 1;
}

}  // namespace sape2::kernels::cuda
