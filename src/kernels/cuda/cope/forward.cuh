#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/cope/kernels.h"
#include "kernels/cuda/cope/smem.h"
#include "kernels/cuda/cope/steps.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// A block takes 64 queries of one head and walks over the keys from the last to the first: the
/// positions are sums from the end.
namespace sape2::kernels::cuda::cope {

/// What lies where in shared memory, behind its alignment; table values come last, where they fit.
template <class T, int HeadSize>
struct ForwardSmem {
  static constexpr int kTileBytes = Tile<T>::bytes(kRowTile, HeadSize);
  static constexpr int kValues = 4 * kTileBytes;
  static_assert(kSharedAlignment + kValues == forward_smem_bytes<sizeof(T)>(HeadSize));
  unsigned char* memory;

  __device__ Tile<T> queries() const { return {memory, kRowTile, HeadSize}; }
  __device__ Tile<T> keys() const { return {memory + kTileBytes, kRowTile, HeadSize}; }
  __device__ Tile<T> contents() const { return {memory + 2 * kTileBytes, kRowTile, HeadSize}; }
  __device__ Tile<T> table() const { return {memory + 3 * kTileBytes, kRowTile, HeadSize}; }
  __device__ float* values() const { return reinterpret_cast<float*>(memory + kValues); }
};

template <class T, int HeadSize>
__global__ void __launch_bounds__(kThreads, kIsFp32<T> || HeadSize > 64 ? 1 : 3)
    forward_kernel(const __grid_constant__ ForwardParams params) {
  extern __shared__ unsigned char shared[];
  const AttentionParams& p = params.attention;
  const Params& cope = params.cope;
  const auto& g = p.geometry;
  const unsigned tiles = g.padded_tokens / kRowTile, head_index = blockIdx.x / tiles;
  const int first_row = (blockIdx.x - head_index * tiles) * kRowTile;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const Lane lane;
  const int warp_row = threadIdx.x / 32 * 16, own_row = warp_row + lane.g;

  const ForwardSmem<T, HeadSize> smem{aligned_shared(shared)};
  float* const values = cope.values == nullptr
                            ? smem.values()
                            : cope.values + std::int64_t(blockIdx.x) * kRowTile * cope.pitch;

  const auto load = [&](const Tile<T>& tile, const ConstView& from, int first) {
    load_rows<HeadSize, kRowTile>(tile, head_of<T>(from, image, head), g.head_size, g.aligned,
                                  [&](int r) { return first + r < g.tokens ? first + r : -1; });
  };
  const auto load_keys = [&](int tile) {
    load(smem.keys(), p.k, tile * kRowTile);
    load(smem.contents(), p.v, tile * kRowTile);
    cp_async_commit();
  };
  const int last_tile = static_cast<int>(tiles) - 1;
  load(smem.queries(), p.q, first_row);
  load_keys(last_tile);
  make_values<T, HeadSize>(values, cope, smem.queries(), smem.table(), false, g.head_size);

  const auto last_position = static_cast<float>(cope.positions - 1);
  OnlineSoftmax softmax;
  float out[HeadSize / 8][4] = {}, later[2] = {};
  for (int tile = last_tile; tile >= 0; --tile) {
    if (tile < last_tile) {
      __syncthreads();
      load_keys(tile);
      cp_async_wait<0>();
      __syncthreads();
    }
    const int valid = g.tokens - tile * kRowTile;
    CopeN8 logits = {}, positions;
    add_product_with_rows(logits, smem.queries(), warp_row, smem.keys(), HeadSize);
    make_gates(positions, logits, cope.gate_scale, valid);
    running_sums<true>(positions, later);
    for_each_n8([&](int n8, int e) {
      const Interpolated bias(values + (own_row + e / 2 * 8) * cope.pitch,
                              fminf(positions[n8][e], last_position));
      const float logit = logits[n8][e] * p.scale + bias.value * cope.bias_factor;
      logits[n8][e] = n8 * 8 + 2 * lane.t + e % 2 < valid ? logit : -INFINITY;
    });
    softmax.update(logits, out);
    add_product_with_columns<T>(out, logits, smem.contents());
  }

  const auto out_head = head_of<T>(p.out, image, head);
  softmax.finish();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first_row + own_row + 8 * half;
    if (token >= g.tokens) continue;
    if (lane.t == 0 && p.softmax != nullptr)
      p.softmax[std::int64_t(head_index) * g.tokens + token] = {softmax.maximum[half],
                                                                softmax.sum[half]};
    store_row(out_head.row(token), out, half, 1.0F / softmax.sum[half], g.head_size, g.aligned);
  }
}

template <class T>
void forward(const ForwardParams& p, cudaStream_t stream) {
  const auto& g = p.attention.geometry;
  const int values = p.cope.values == nullptr ? value_bytes(p.cope.pitch) : 0;
  dispatch_head_size<T>(g.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    launch(forward_kernel<T, kSize>, g.batch_heads * (g.padded_tokens / kRowTile), 1, kThreads,
           forward_smem_bytes<sizeof(T)>(kSize) + values, stream, p);
  });
}

}  // namespace sape2::kernels::cuda::cope
