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
    if (!kIsWide<T> && entry < entries)
      for (int s = 0; s < samples; ++s)
        sum += from[std::int64_t(g.prefix + s * (patches / samples)) * width + entry];
    shift[entry] = sum / samples;
  }
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < width * kRowTile; i += kThreads) {
    const int row = i / width, entry = i - row * width, token = first + row;
    const bool used = entry < entries && token >= g.prefix && token < g.tokens;
    const float value = used ? from[std::int64_t(first) * width + i] - shift[entry] : 0.0F;
    tile.at(row, entry) = narrow<T>(value);
  }
  publish_to_matrix_unit();
  __syncthreads();

  const std::int64_t place = head * g.padded_tokens + first;
  T* const to = static_cast<T*>(p.near[axis]) + place * width;
  const int pieces = width / Tile<T>::kPerPiece;
  for (int i = threadIdx.x; i < pieces * kRowTile; i += kThreads)
    reinterpret_cast<uint4*>(to)[i] =
        *reinterpret_cast<const uint4*>(tile.piece(i / pieces, i % pieces));
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
