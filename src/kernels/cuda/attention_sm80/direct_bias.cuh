#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_sm80/columns.cuh"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// The direct form, b_in = x_i[column of n] + y_i[row of n].
namespace sape2::kernels::cuda::sm80 {

/// Walks the 8-wide n8 fragments of a tile laid out by GridColumns: which grid row and column each
/// begins at.
struct N8Cursor {
  int y, x = 0;
  int part_width;

  __device__ N8Cursor(int first_row, int width) : y(first_row), part_width(width) {}
  __device__ void next() {
    x += 8;
    if (x >= part_width) {
      x = 0;
      ++y;
    }
  }
};

/// Queries along the rows of the tile. A lane's places of x stay the same from tile to tile, so
/// x_i lives in registers; y_i is one number a grid row.
template <class T, int N8>
struct DirectRows {
  using Columns = GridColumns<N8 * 8>;

  const T* x[2];  // of this lane's rows
  const T* y[2];
  float along_x[N8][4];  // times the factor of the bias in the logit

  __device__ DirectRows(const AttentionParams& p, std::int64_t batch_head, int /*first_row*/,
                        int row, unsigned char* /*shared*/) {
    const auto& v = p.vectors;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t token = batch_head * p.geometry.padded_tokens + row + 8 * half;
      x[half] = static_cast<const T*>(v.x) + token * v.width_x;
      y[half] = static_cast<const T*>(v.y) + token * v.width_y;
    }
  }

  __device__ void begin_part(const Columns& columns, int part, float factor) {
    N8Cursor at(0, columns.part_width);
    const Lane lane;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8, at.next()) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = part * columns.part_width + at.x + 2 * lane.t + e % 2;
        along_x[n8][e] = column < columns.cols ? factor * widen(x[e / 2][column]) : 0.0F;
      }
    }
  }

  /// logits = scale · scores + factor · bias for one tile.
  __device__ void add_to_logits(float (&logits)[N8][4], const Columns& columns, int first_row,
                                float scale, float factor) const {
    N8Cursor at(first_row, columns.part_width);
    float along_y[2] = {0.0F, 0.0F};
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8, at.next()) {
      if (at.y >= columns.rows) {  // prefix tokens
#pragma unroll
        for (int e = 0; e < 4; ++e) logits[n8][e] *= scale;
        continue;
      }
      if (at.x == 0) {
        along_y[0] = factor * widen(y[0][at.y]);
        along_y[1] = factor * widen(y[1][at.y]);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        logits[n8][e] = fmaf(logits[n8][e], scale, along_x[n8][e] + along_y[e / 2]);
    }
  }
};

/// Gradient of the queries' vectors: sums of the logits' gradients along the tile's rows.
template <class T, int N8>
struct DirectRowGradients {
  using Columns = GridColumns<N8 * 8>;

  T* dx[2];  // of this lane's rows
  T* dy[2];
  float factor;  // from logit to bias
  bool with_gain;
  float sum_x[N8][4];

  __device__ DirectRowGradients(const AttentionBackwardParams& p, std::int64_t batch_head, int row,
                                float c)
      : factor(c), with_gain(p.dgain != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t token = batch_head * p.forward.geometry.padded_tokens + row + 8 * half;
      dx[half] = static_cast<T*>(p.dx) + token * p.forward.vectors.width_x;
      dy[half] = static_cast<T*>(p.dy) + token * p.forward.vectors.width_y;
    }
  }

  __device__ void begin_part() {
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum_x[n8][e] = 0.0F;
  }

  /// Adds one tile; returns this lane's share of Σ gradient · y-part of the bias.
  __device__ float add(const Columns& columns, const typename Columns::Place& place,
                       const float (&gradient)[N8][4], const T* const (&y)[2]) {
    const Lane lane;
    const int part = place.part, slots = columns.rows_per_tile * columns.part_width;
    N8Cursor at(place.first_row, columns.part_width);
    float sum_y[2] = {0.0F, 0.0F}, with_bias = 0.0F;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      const bool patch = at.y < columns.rows && n8 * 8 < slots;
      const int row = at.y;
      if (patch) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum_x[n8][e] += gradient[n8][e];
          sum_y[e / 2] += gradient[n8][e];
        }
      }
      at.next();
      if (patch && at.x == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sum = sum_y[half];
          sum += __shfl_xor_sync(0xffffffffu, sum, 1);
          sum += __shfl_xor_sync(0xffffffffu, sum, 2);
          sum_y[half] = 0.0F;
          if (lane.t == 0) {
            if (with_gain) with_bias += sum * widen(y[half][row]);
            const float before = part == 0 ? 0.0F : widen(dy[half][row]);
            dy[half][row] = narrow<T>(before + factor * sum);
          }
        }
      }
    }
    return with_bias;
  }

  /// Writes the part's sums; returns this lane's share of Σ gradient · x-part of the bias.
  __device__ float end_part(const Columns& columns, int part, const T* const (&x)[2]) {
    const Lane lane;
    const int row_n8 = columns.part_width / 8;
    int across[N8];
#pragma unroll
    for (int n8 = 0, next = 0; n8 < N8; ++n8, ++next) across[n8] = next = next == row_n8 ? 0 : next;
    float with_bias = 0.0F;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      if (n8 >= row_n8) break;
      // N8 that lie below one another in the tile stand for the same grid columns.
      float sum[4] = {};
#pragma unroll
      for (int below = n8; below < N8; ++below)
        if (across[below] == n8)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] += sum_x[below][e];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = part * columns.part_width + n8 * 8 + 2 * lane.t + e % 2;
        if (column >= columns.cols) continue;
        if (with_gain) with_bias += sum[e] * widen(x[e / 2][column]);
        dx[e / 2][column] = narrow<T>(factor * sum[e]);
      }
    }
    return with_bias;
  }
};

/// Keys along the rows of the tile: the bias of (key, query) is read from the queries' vectors,
/// laid out in shared memory as (place, query), for just the places this block's keys stand at.
template <class T, int N8>
struct DirectColumns {
  using Smem = DirectColumnsSmem;
  static constexpr int kPitch = Smem::pitch(N8 * 8);
  static constexpr int kMaxPlaces = Smem::kMostPlaces;
  static constexpr int kBuffer = Smem::buffer(N8 * 8);

  float* buffers;  // two of (places + 1, kPitch)
  const T* x;
  const T* y;
  int width_x, width_y;
  int cols, first_key, x_places, y_first, y_places;
  int x_row[2], y_row[2];  // this lane's two keys in the buffer

  __device__ DirectColumns(const AttentionParams& p, std::int64_t batch_head, int first_row,
                           int row, unsigned char* shared) {
    const auto& g = p.geometry;
    cols = g.cols;
    width_x = p.vectors.width_x;
    width_y = p.vectors.width_y;
    x = static_cast<const T*>(p.vectors.x) + batch_head * g.padded_tokens * width_x;
    y = static_cast<const T*>(p.vectors.y) + batch_head * g.padded_tokens * width_y;
    buffers = reinterpret_cast<float*>(shared);
    first_key = max(first_row, g.prefix) - g.prefix;
    const int last_key = min(first_row + kRowTile, g.tokens) - 1 - g.prefix;
    x_places = min(cols, kRowTile);
    y_first = first_key / cols;
    y_places = last_key < 0 ? 0 : last_key / cols - y_first + 1;
    const int zero = x_places + y_places;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = row + 8 * half - g.prefix;
      const bool patch = key >= 0 && key <= last_key;
      x_row[half] = !patch ? zero : cols <= kRowTile ? key % cols : key - first_key;
      y_row[half] = !patch ? zero : x_places + key / cols - y_first;
    }
    for (int i = threadIdx.x; i < 2 * kPitch; i += blockDim.x)
      buffers[i / kPitch * kBuffer + zero * kPitch + i % kPitch] = 0.0F;
  }

  /// Loads the vectors of queries first … first + 8·N8 − 1.
  __device__ void load(int buffer, int first) const {
    const int places = x_places + y_places;
    for (int i = threadIdx.x; i < places * N8 * 8; i += blockDim.x) {
      const int query = i / places, place = i - query * places;
      const std::int64_t token = first + query;
      float value;
      if (place >= x_places) {
        value = widen(y[token * width_y + y_first + place - x_places]);
      } else {
        value = widen(x[token * width_x + (cols <= kRowTile ? place : (first_key + place) % cols)]);
      }
      buffers[buffer * kBuffer + place * kPitch + query] = value;
    }
  }

  __device__ void bias(int buffer, int n8, float (&b)[4]) const {
    const Lane lane;
    const float* at = buffers + buffer * kBuffer + n8 * 8 + 2 * lane.t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto bx = *reinterpret_cast<const float2*>(at + x_row[half] * kPitch);
      const auto by = *reinterpret_cast<const float2*>(at + y_row[half] * kPitch);
      b[2 * half] = bx.x + by.x;
      b[2 * half + 1] = bx.y + by.y;
    }
  }
};

}  // namespace sape2::kernels::cuda::sm80
