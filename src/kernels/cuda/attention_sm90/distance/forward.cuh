#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/attention_sm90/distance/bias.cuh"
#include "kernels/cuda/attention_sm90/distance/forward_block.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/lazy_softmax.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"

/// Attention forward on Hopper, distance form: one warpgroup takes 64 queries of a head and walks
/// over all keys, three blocks a multiprocessor. Square roots and exponentials take longest, so
/// products go on beside them: along x a tile ahead, the others from a tile's beginning on.
namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// `Steps`: sixteens of a vector's entries.
template <class T, int Steps>
struct DistanceForward : DistanceForwardBlock<Steps> {
  using Block = DistanceForwardBlock<Steps>;
  using Smem = typename Block::Smem;
  using Block::kColumns, Block::at, Block::barrier, Block::block, Block::first_row, Block::g;
  using Block::matrix, Block::p, Block::tiles, Block::vectors;
  static constexpr int kN8 = kColumns / 8;
  static constexpr float kAlmostZero = 1e-30F;

  int row;  // row and row + 8 are this lane's
  // Tiles from `first_simple` on, as many as that, have neither prefix tokens nor padding.
  unsigned first_simple, simple_tiles;
  std::uint32_t weights_at;  // where this lane begins to write weights
  float scale, factor;       // of scores and of distances, times log2(e)
  LazySoftmax softmax;
  float out[8][4];

  __device__ explicit DistanceForward(const ForwardParams& all)
      : Block(all),
        row(first_row + threadIdx.x / 32 * 16 + Lane().g),
        first_simple(g.prefix > first_row + 16 * this->warp ? tiles
                                                            : (g.prefix + kColumns - 1) / kColumns),
        simple_tiles(max(g.tokens / kColumns - int(first_simple), 0)),
        weights_at(shared_address(Tile<T>{at(Smem::kWeights), kRowTile, 64}.chunk(
            threadIdx.x / 32 * 16 + threadIdx.x % 16, threadIdx.x % 32 / 16))),
        // Padding is −∞ times the scale, which no 0 may undo.
        scale((p.scale == 0.0F ? kAlmostZero : p.scale) * kLog2E),
        factor(per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F) * kLog2E) {
    asm volatile("" : "+r"(weights_at));  // else it is worked out again for every tile
  }

  /// Squared lengths of a lane's columns, of half a tile.
  struct Norms {
    float2 of[kN8 / 2];
  };
  __device__ static Norms norms(int tile, int axis, int half) {
    const float2* const from =
        reinterpret_cast<const float2*>(at(Smem::norms(tile, axis))) + Lane().t;
    Norms norms;
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i) norms.of[i] = from[(half * kN8 / 2 + i) * 4];
    return norms;
  }
  /// From products to distances, of half a tile.
  __device__ static void roots(float (&c)[kN8][4], const DistanceBias<kN8>& distance,
                               const Norms& norms, int half) {
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& number = c[half * kN8 / 2 + i][e];
        number = root_of_distance(distance.square(number, norms.of[i], e));
      }
  }

  /// Adds up a tile's values. Before the first tile they are of nothing, and the first tile's take
  /// their place.
  __device__ void start_values(int tile) {
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k)
      wgmma_ss_mn_major<T>(out, matrix(Smem::kWeights) + 2 * k, matrix(Smem::kValues) + 128 * k,
                           tile > 0 || k > 0);
    wgmma_commit();
  }

  __device__ void run() {
    const DistanceBias<kN8> along_x{p, block.batch_head, row, 0},
        along_y{p, block.batch_head, row, 1};
    float x[kN8][4], length[kN8][4], scores[kN8][4];
    const auto start_x = [&](int tile) {
      wgmma_fence();
      start_wgmma_ss<T, Steps>(x, vectors(Smem::kOwnX), vectors(Smem::x(tile)));
      wgmma_commit();
    };
    const auto share = this->kept_share();
    mbarrier_wait(barrier(Smem::rows), 0);
    start_x(0);
    Norms first_norms = norms(0, 0, 0);
    wgmma_wait<0>();
    fence_accumulators(x);
    bool has_arrived = false;
    for (int tile = 0;; ++tile) {
      // Shared memory answers slowly beside products, so lengths are asked for before them.
      Norms next_norms = norms(tile, 0, 1);
      if (!has_arrived) mbarrier_wait(barrier(Smem::arrived), tile);
      wgmma_fence();
      start_wgmma_ss<T, Steps>(length, vectors(Smem::kOwnY), vectors(Smem::kY));
      start_wgmma_ss<T>(scores, matrix(Smem::kQueries), matrix(Smem::kKeys));
      start_values(tile - 1);
      if (tile == tiles) break;
      roots(x, along_x, first_norms, 0);
      first_norms = norms(tile, 1, 0);
      roots(x, along_x, next_norms, 1);
      wgmma_wait<0>();
      fence_accumulators(length);
      fence_accumulators(scores);
      fence_accumulators(out);
      next_norms = norms(tile, 1, 1);
      this->replace(tile, share);
      roots(length, along_y, first_norms, 0);
      roots(length, along_y, next_norms, 1);
#pragma unroll
      for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e) length[n8][e] += x[n8][e];
      fence_accumulators(x);
      // Behind the last tile it is any tile's, and nobody asks for it.
      start_x(tile + 1);
      if (tile - first_simple >= simple_tiles) {
        along_x.clear_prefix(length, row, tile * kColumns);
        clear_padding(scores, tile);
      }
      weigh(scores, length);
      if (tile == 0 ? softmax.begins_badly() : softmax.overflows()) {
        follow(scores, length);
        weigh(scores, length);
      }
      softmax.end_tile();
      first_norms = norms(tile + 1, 0, 0);
      has_arrived = mbarrier_test_wait(barrier(Smem::arrived), tile + 1);
      fence_proxy_async();  // a warp's weights are for its own products alone
      __syncwarp();
      wgmma_wait<0>();
      fence_accumulators(x);
    }
    wgmma_wait<0>();
    fence_accumulators(out);
  }

  /// Padding has no weight.
  __device__ void clear_padding(float (&scores)[kN8][4], int tile) const {
    const int first = tile * kColumns + 2 * Lane().t;
    const float lowest = scale > 0.0F ? -INFINITY : INFINITY;
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (first + n8 * 8 + e % 2 >= g.tokens) scores[n8][e] = lowest;
  }
  /// A logit, times log2(e), plus `shift`.
  __device__ float logit(float score, float length, float shift) const {
    return fmaf(score, scale, fmaf(length, factor, shift));
  }
  /// Leaves the weights in shared memory: registers are scarce.
  __device__ void weigh(const float (&scores)[kN8][4], const float (&length)[kN8][4]) {
    softmax.begin_tile();
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) {
      float weights[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int n8 = 2 * k + i / 4, e = i % 4;
        weights[i / 4][e] =
            softmax.weigh(logit(scores[n8][e], length[n8][e], softmax.shift[e / 2]), e);
      }
      store_fragment<T>(weights_at ^ 32 * k, as_a<T>(weights[0], weights[1]));
    }
  }
  /// Has the softmax go to the greatest logit so far.
  __device__ void follow(const float (&scores)[kN8][4], const float (&length)[kN8][4]) {
    float greatest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        greatest[e / 2] = fmaxf(greatest[e / 2], logit(scores[n8][e], length[n8][e], 0.0F));
    softmax.move(greatest, out);
  }

  __device__ void store() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = row + 8 * half;
      const float whole = row_sum(softmax.sum[half]);
      if (token < g.tokens && Lane().t == 0 && p.softmax != nullptr)
        p.softmax[block.batch_head * g.tokens + token] = {softmax.top[half] * kLn2, whole};
#pragma unroll
      for (int n8 = 0; n8 < 8; ++n8)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) out[n8][e] *= 1.0F / whole;
    }
    const Tile<T> tile{at(Smem::kWeights), kRowTile, 64};
    __syncthreads();  // all four warps' products are done
    store_tokens(p.out, this->params.out, block, tile, out, 1.0F, first_row);
    tma_store_wait();
  }
};

#endif

template <class T, int Steps>
__global__ void __launch_bounds__(kThreads, 3)
    distance_forward_kernel(const __grid_constant__ ForwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  DistanceForward<T, Steps> forward(params);
  if (threadIdx.x == 0) forward.prepare();
  fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 0) forward.load_old();
  pdl_wait();
  if (threadIdx.x == 0) forward.load_new();
  forward.run();
  pdl_launch_dependents();
  forward.store();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
