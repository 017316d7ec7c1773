#pragma once

#include "kernels/cuda/params.h"
#include "kernels/cuda/tile.cuh"

/// dout · out, the mean of the weights' gradients in each query's softmax.
namespace sape2::kernels::cuda {

/// Sixteen bytes of a tensor as numbers.
template <class T>
__device__ void widen_piece(const uint4& piece, float (&numbers)[16 / sizeof(T)]) {
  const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kIsWide<T>) {
      numbers[i] = __uint_as_float(words[i]);
    } else {
      const float2 pair = unpack<T>(words[i]);
      numbers[2 * i] = pair.x;
      numbers[2 * i + 1] = pair.y;
    }
  }
}

/// dout · out of the rows of one block, into `delta`; a group of lanes takes a row.
template <class T, int HeadSize>
__device__ void rows_delta(const BackwardParams& p, int image, int head, int first_row,
                           float* delta) {
  constexpr int kPerPiece = Tile<T>::kPerPiece, kLanes = HeadSize / kPerPiece;
  const auto& g = p.forward.geometry;
  const auto out = head_of<T>(p.out, image, head), dout = head_of<T>(p.dout, image, head);
  const int lane = threadIdx.x % kLanes, column = lane * kPerPiece;
#pragma unroll 4
  for (int r = threadIdx.x / kLanes; r < kRowTile; r += kThreads / kLanes) {
    const int token = first_row + r;
    float sum = 0.0F;
    if (token < g.tokens && g.aligned && column < g.head_size) {
      float a[kPerPiece], b[kPerPiece];
      widen_piece<T>(*reinterpret_cast<const uint4*>(out.row(token) + column), a);
      widen_piece<T>(*reinterpret_cast<const uint4*>(dout.row(token) + column), b);
#pragma unroll
      for (int i = 0; i < kPerPiece; ++i) sum += a[i] * b[i];
    } else if (token < g.tokens) {
      for (int c = column; c < min(column + kPerPiece, g.head_size); ++c)
        sum += widen(out.row(token)[c]) * widen(dout.row(token)[c]);
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) delta[r] = sum;
  }
}

}  // namespace sape2::kernels::cuda
