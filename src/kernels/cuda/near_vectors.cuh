#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/near_vectors.h"
#include "kernels/cuda/wgmma.cuh"

/// Axis vectors made ready for distances: shifted by a common vector, which distances do not
/// notice, so that rounding costs digits of the spread only; rounded; and their squared lengths.
namespace sape2::kernels::cuda {

/// The shift is the mean of a few patches spread over the grid.
inline constexpr int kShiftSamples = 16;

/// Numbers rounded to sixteen bytes of T.
template <class T>
__device__ uint4 pack_piece(const float (&numbers)[16 / sizeof(T)]) {
  if constexpr (kIsWide<T>) {
    return reinterpret_cast<const uint4&>(numbers);
  } else {
    return make_uint4(pack<T>(numbers[0], numbers[1]), pack<T>(numbers[2], numbers[3]),
                      pack<T>(numbers[4], numbers[5]), pack<T>(numbers[6], numbers[7]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    near_vectors_kernel(const __grid_constant__ NearVectorParams p) {
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = aligned_shared(unaligned);
  const auto& g = p.geometry;
  const int axis = blockIdx.y;
  const int entries = axis ? g.rows : g.cols, width = p.widths[axis];
  const unsigned row_tiles = g.padded_tokens / kRowTile, head_index = blockIdx.x / row_tiles;
  const int first = (blockIdx.x - head_index * row_tiles) * kRowTile;
  const std::int64_t head = head_index;  // of all sets
  const float* const from = p.from[axis] + head * g.padded_tokens * width;
  const Tile<T> tile{shared, kRowTile, width};
  float* const shift = reinterpret_cast<float*>(shared + Tile<T>::bytes(kRowTile, width));

  const int patches = g.tokens - g.prefix, samples = min(kShiftSamples, patches);
  for (int entry = threadIdx.x; entry < width; entry += kThreads) {
    float sum = 0.0F;
    if (!kIsWide<T> && entry < entries) {
#pragma unroll
      for (int s = 0; s < kShiftSamples; ++s)
        if (s < samples)
          sum += from[std::int64_t(g.prefix + s * (patches / samples)) * width + entry];
    }
    shift[entry] = sum / samples;
  }
  __syncthreads();
  constexpr int kPerPiece = Tile<T>::kPerPiece;
  const int pieces = width / kPerPiece;
  const std::int64_t place = head * g.padded_tokens + first;
  T* const to = static_cast<T*>(p.near[axis]) + place * width;
#pragma unroll 4
  for (int i = threadIdx.x; i < pieces * kRowTile; i += kThreads) {
    const int row = i / pieces, piece = i - row * pieces, token = first + row;
    const bool used = token >= g.prefix && token < g.tokens;
    const float4* const quads =
        reinterpret_cast<const float4*>(from + std::int64_t(first) * width) + i * (kPerPiece / 4);
    float numbers[kPerPiece];
#pragma unroll
    for (int quad = 0; quad < kPerPiece / 4; ++quad)
      reinterpret_cast<float4&>(numbers[4 * quad]) = quads[quad];
#pragma unroll
    for (int j = 0; j < kPerPiece; ++j) {
      const int entry = piece * kPerPiece + j;
      numbers[j] = used && entry < entries ? numbers[j] - shift[entry] : 0.0F;
    }
    const uint4 packed = pack_piece<T>(numbers);
    *reinterpret_cast<uint4*>(tile.piece(row, piece)) = packed;
    reinterpret_cast<uint4*>(to)[i] = packed;
  }
  publish_to_matrix_unit();
  __syncthreads();

  if constexpr (!kIsWide<T>) {
    const Lane lane;
    const int warp = threadIdx.x / 32, row = warp * 16;
    float c[2][4] = {};
    if (width == 64 && suits_warpgroups<T>(64)) {
      float all[8][4];
      row_product<64>(all, tile, tile);
#pragma unroll
      for (int piece = 0; piece < 8; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (piece / 2 == warp) c[piece % 2][e] = all[piece][e];
    } else {
      for (int k = 0; k < width; k += 16) {
        FragmentB<T> b[2];
        load_b_rows(b, tile, row, k);
        const auto a = load_a(tile, row, k);
        multiply_add(c[0], a, b[0]);
        multiply_add(c[1], a, b[1]);
      }
    }
    if (lane.t == lane.g / 2) {
      float* const norms = p.norms[axis] + place + row + lane.g;
      norms[0] = lane.g % 2 ? c[0][1] : c[0][0];
      norms[8] = lane.g % 2 ? c[1][3] : c[1][2];
    }
  }
}

template <class T>
void near_vectors(const NearVectorParams& p, cudaStream_t stream) {
  const int width = p.widths[0] > p.widths[1] ? p.widths[0] : p.widths[1];
  launch(near_vectors_kernel<T>,
         p.sets * p.geometry.batch_heads * (p.geometry.padded_tokens / kRowTile), 2, kThreads,
         kSharedAlignment + Tile<T>::bytes(kRowTile, width) + width * 4, stream, p);
}

}  // namespace sape2::kernels::cuda
