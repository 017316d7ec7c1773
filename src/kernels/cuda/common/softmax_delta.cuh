#pragma once

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// dout · out, the mean of the weights' gradients in each query's softmax.
namespace sape2::kernels::cuda {

/// Sixteen bytes of a tensor as numbers.
template <class T>
__device__ void widen_chunk(const uint4& chunk, float (&numbers)[16 / sizeof(T)]) {
  const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kIsFp32<T>) {
      numbers[i] = __uint_as_float(words[i]);
    } else {
      const float2 pair = unpack<T>(words[i]);
      numbers[2 * i] = pair.x;
      numbers[2 * i + 1] = pair.y;
    }
  }
}

/// The product of two rows of which each of `Lanes` neighbours has a chunk; all of them get it.
template <class T, int Lanes>
__device__ float dot_of_chunks(const uint4& left, const uint4& right) {
  constexpr int kPerChunk = 16 / sizeof(T);
  float a[kPerChunk], b[kPerChunk], sum = 0.0F;
  widen_chunk<T>(left, a);
  widen_chunk<T>(right, b);
#pragma unroll
  for (int e = 0; e < kPerChunk; ++e) sum += a[e] * b[e];
#pragma unroll
  for (int step = Lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

/// dout · out of the rows of one block, into `delta`; a group of lanes takes a row.
template <class T, int HeadSize>
__device__ void rows_delta(const AttentionBackwardParams& p, int image, int head, int first_row,
                           float* delta) {
  constexpr int kPerChunk = Tile<T>::kPerChunk, kLanes = HeadSize / kPerChunk;
  const auto& g = p.forward.geometry;
  const auto out = head_of<T>(p.out, image, head), dout = head_of<T>(p.dout, image, head);
  const int lane = threadIdx.x % kLanes, column = lane * kPerChunk;
  constexpr int kStep = kThreads / kLanes, kRows = kRowTile / kStep;
  constexpr int kAtOnce = kRows < 4 ? kRows : 4;
  if (g.aligned) {
#pragma unroll 1
    for (int first = threadIdx.x / kLanes; first < kRowTile; first += kAtOnce * kStep) {
      // All loads first: one wait for all of them.
      uint4 chunks[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int token = first_row + first + i * kStep;
        const bool there = token < g.tokens && column < g.head_size;
        const uint4 none = make_uint4(0, 0, 0, 0);
        chunks[i][0] = there ? *reinterpret_cast<const uint4*>(out.row(token) + column) : none;
        chunks[i][1] = there ? *reinterpret_cast<const uint4*>(dout.row(token) + column) : none;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float sum = dot_of_chunks<T, kLanes>(chunks[i][0], chunks[i][1]);
        if (lane == 0) delta[first + i * kStep] = sum;
      }
    }
    return;
  }
  for (int r = threadIdx.x / kLanes; r < kRowTile; r += kStep) {
    const int token = first_row + r;
    float sum = 0.0F;
    if (token < g.tokens)
      for (int c = column; c < min(column + kPerChunk, g.head_size); ++c)
        sum += widen(out.row(token)[c]) * widen(dout.row(token)[c]);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) delta[r] = sum;
  }
}

/// The same for 64 rows of 16-bit numbers that lie at multiples of 16 bytes, dout being in shared
/// memory by the time it is needed.
template <class T>
struct TileDelta {
  static constexpr int kStep = kThreads / 8, kRows = kRowTile / kStep;
  uint4 out[kRows];

  __device__ TileDelta(const AttentionBackwardParams& p, int image, int head, int first_row) {
    const auto& g = p.forward.geometry;
    const auto from = head_of<T>(p.out, image, head);
    const int chunk = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int token = first_row + threadIdx.x / 8 + i * kStep;
      const bool there = token < g.tokens && chunk * 8 < g.head_size;
      out[i] =
          there ? reinterpret_cast<const uint4*>(from.row(token))[chunk] : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ void write(const Tile<T>& dout, float* delta) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = threadIdx.x / 8 + i * kStep;
      const float sum = dot_of_chunks<T, 8>(
          out[i], *reinterpret_cast<const uint4*>(dout.chunk(row, threadIdx.x % 8)));
      if (threadIdx.x % 8 == 0) delta[row] = sum;
    }
  }
};

}  // namespace sape2::kernels::cuda
