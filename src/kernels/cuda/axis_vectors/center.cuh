#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/axis_vectors/center.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Axis vectors made ready for distances: shifted by a common vector, which distances do not
/// notice, so that rounding costs digits of the spread only; rounded; and their squared lengths.
namespace sape2::kernels::cuda::axis_vectors {

/// The shift is the mean of a few patches spread over the grid. Three kernels choose their samples
/// differently, and results depend on the choice by rounding. Here all vectors are in global
/// memory, so samples come from anywhere.
inline constexpr int kCenterSamples = 16;

/// One entry of it. All samples are read before the first is added.
__device__ inline float center_of(const float* entry, const Geometry& g, int width) {
  const int patches = g.tokens - g.prefix, samples = min(kCenterSamples, patches);
  const int step = patches / samples * width;
  entry += std::int64_t(g.prefix) * width;
  float numbers[kCenterSamples];
#pragma unroll
  for (int s = 0; s < kCenterSamples; ++s) numbers[s] = s < samples ? entry[s * step] : 0.0F;
  float sum = 0.0F;
#pragma unroll
  for (int s = 0; s < kCenterSamples; ++s) sum += numbers[s];
  return sum / samples;
}

template <class T>
__global__ void __launch_bounds__(kThreads) center_kernel(const __grid_constant__ CenterParams p) {
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = aligned_shared(unaligned);
  const auto& g = p.geometry;
  const int axis = blockIdx.y;
  const int entries = axis ? g.rows : g.cols, width = p.widths[axis];
  const unsigned row_tiles = g.padded_tokens / kRowTile, head_index = blockIdx.x / row_tiles;
  const int first = (blockIdx.x - head_index * row_tiles) * kRowTile;
  const std::int64_t head = head_index;  // of all sets
  const float* const from = p.from[axis] + head * g.padded_tokens * width;
  const std::int64_t place = head * g.padded_tokens + first;
  T* const to = static_cast<T*>(p.centered[axis]) + place * width;
  const Tile<T> tile{shared, kRowTile, width};
  float* const shift = reinterpret_cast<float*>(shared + Tile<T>::bytes(kRowTile, width));

  pdl_wait();
  pdl_launch_dependents();
  for (int entry = threadIdx.x; entry < width; entry += kThreads)
    shift[entry] = !kIsFp32<T> && entry < entries ? center_of(from + entry, g, width) : 0.0F;
  __syncthreads();

  // Four entries at a time; going on by kThreads of them is some rows and some columns further.
  const int quads = width / 4, rows = kThreads / quads, columns = kThreads - rows * quads;
  const auto* const all = reinterpret_cast<const float4*>(from + std::int64_t(first) * width);
  int row = threadIdx.x / quads, quad = threadIdx.x - row * quads;
#pragma unroll 4
  for (int i = threadIdx.x; i < quads * kRowTile; i += kThreads) {
    const int token = first + row, entry = quad * 4;
    const float4 numbers = all[i], common = reinterpret_cast<const float4*>(shift)[quad];
    const bool patch = token >= g.prefix && token < g.tokens;
    // What lies behind the line's end means nothing.
    const float centered[4] = {
        patch && entry < entries ? numbers.x - common.x : 0.0F,
        patch && entry + 1 < entries ? numbers.y - common.y : 0.0F,
        patch && entry + 2 < entries ? numbers.z - common.z : 0.0F,
        patch && entry + 3 < entries ? numbers.w - common.w : 0.0F,
    };
    if constexpr (kIsFp32<T>) {
      const float4 n8 = make_float4(centered[0], centered[1], centered[2], centered[3]);
      reinterpret_cast<float4*>(to)[i] = n8;
    } else {
      const uint2 n8 =
          make_uint2(pack<T>(centered[0], centered[1]), pack<T>(centered[2], centered[3]));
      reinterpret_cast<uint2*>(to)[i] = n8;
      *reinterpret_cast<uint2*>(tile.chunk(row, quad / 2) + quad % 2 * 8) = n8;
    }
    row += rows;
    quad += columns;
    if (quad >= quads) {
      quad -= quads;
      ++row;
    }
  }
  fence_proxy_async();
  __syncthreads();

  if constexpr (!kIsFp32<T>) {
    const Lane lane;
    const int warp = threadIdx.x / 32, row = warp * 16;
    float c[2][4] = {};
    if (width == 64 && suits_wgmma<T>(64)) {
      float all[8][4];
      row_product<64>(all, tile, tile);
#pragma unroll
      for (int n8 = 0; n8 < 8; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (n8 / 2 == warp) c[n8 % 2][e] = all[n8][e];
    } else {
      for (int k = 0; k < width; k += 16) {
        FragmentB<T> b[2];
        load_b_rows(b, tile, row, k);
        const auto a = load_a(tile, row, k);
        mma(c[0], a, b[0]);
        mma(c[1], a, b[1]);
      }
    }
    if (lane.t == lane.g / 2) {
      float* const norms = p.norms[axis] + place + row + lane.g;
      const float2 squared = diagonal(c, lane);
      norms[0] = squared.x;
      norms[8] = squared.y;
    }
  }
}

template <class T>
void center(const CenterParams& p, cudaStream_t stream) {
  const int width = p.widths[0] > p.widths[1] ? p.widths[0] : p.widths[1];
  launch(center_kernel<T>, p.sets * p.geometry.batch_heads * (p.geometry.padded_tokens / kRowTile),
         {.parts = 2, .overlapping = true}, kThreads,
         kSharedAlignment + Tile<T>::bytes(kRowTile, width) + width * 4, stream, p);
}

}  // namespace sape2::kernels::cuda::axis_vectors
