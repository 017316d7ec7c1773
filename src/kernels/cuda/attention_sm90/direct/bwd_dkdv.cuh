#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dkdv_bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dkdv_loads.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/ref_if.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward on Hopper, keys along rows: one warpgroup takes 64 keys (with a direct bias a
/// square of the grid, see SquareTiling), walks over all queries and gathers dk and dv. No bias,
/// or the direct form.
namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The steps of a tile, on numbers that the kernel has in registers. `Exact`: from bias to scores
/// is a number of type T.
template <class T, BiasForm Form, bool Exact>
struct BwdDkDvTile {
  using Smem = BwdDkDvSmem<Form>;
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kN8 = kTileColumns / 8;
  // The tile by which the launch before is likely done, and nobody waits for it in vain.
  static constexpr int kTileOfWait = 2;
  const BackwardParams& params;
  const BwdDkDvLoads<T, Form>& load;
  const BwdDkDvSmemView<T, Form>& smem;
  const int &tiles, &warp;
  RefIf<const KeysBias<T, Exact>, kDirect> bias;
  const Lane& lane;
  float scale;  // from score to logit · log2(e)
  float (&weight)[kN8][4], (&gradient)[kN8][4], (&dk)[8][4], (&dv)[8][4];
  FragmentA<T> (&fragments)[kN8 / 2], (&dfragments)[kN8 / 2];
  float (&shifts)[kN8 / 2][2];  // half a tile's lse (base 2)
  // Pipeline stage of this tile's q, lse and delta; of the last one.
  int &stage, &stage_before, &phase;

  __device__ static unsigned dout_stage(int tile) { return unsigned(tile) % Smem::kDoutStages; }

  __device__ void wait_queries() {
    mbarrier_wait(smem.full(stage), phase);
    fence_accumulators(weight);
  }
  __device__ void wait_dout(int tile) const {
    mbarrier_wait(smem.dout_full(dout_stage(tile)), unsigned(tile) / Smem::kDoutStages);
  }
  /// Scores = k·qᵀ, where there is a bias added to that.
  __device__ void start_scores() {
    wgmma_fence();
    if constexpr (kDirect) bias->start(weight, smem.vectors_matrix(stage));
    start_wgmma_ss<T, 4, kDirect>(weight, smem.k_matrix(), smem.q_matrix(stage));
    wgmma_commit();
  }
  /// The weights' gradients = v·doutᵀ.
  __device__ void start_dweights(int tile) {
    wgmma_fence();
    start_wgmma_ss<T>(gradient, smem.v_matrix(), smem.dout_matrix(dout_stage(tile)));
    wgmma_commit();
  }
  /// dv += weights·dout, dk += logits' gradients·q.
  __device__ void start_sums(int stage_of_dout, int of_stage) {
    start_wgmma_rs<T>(dv, fragments, smem.dout_matrix(stage_of_dout));
    start_wgmma_rs<T>(dk, dfragments, smem.q_matrix(of_stage));
  }

  /// Of two neighbouring queries, lse (base 2) and delta.
  __device__ float4 lse_delta_of(int n8) const { return smem.lse_delta(stage)[n8 * 4 + lane.t]; }
  /// Before products start: beside those memory answers slowly.
  __device__ void read_shifts(int first_n8) {
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i) {
      const float4 pair = lse_delta_of(first_n8 + i);
      shifts[i][0] = pair.x;
      shifts[i][1] = pair.z;
    }
  }
  /// Half a tile's scores become weights.
  __device__ void weigh(int first_n8) {
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = weight[first_n8 + i][e];
        score = power_of_2(fmaf(score, scale, -shifts[i][e % 2]));
      }
    fence_accumulators(weight);
  }
  /// Weights and their gradients become fragments together, so that few numbers wait at once.
  __device__ void make_fragments() {
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) {
#pragma unroll
      for (int n8 = 2 * k; n8 < 2 * k + 2; ++n8) {
        const float4 pair = lse_delta_of(n8);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[n8][e] = weight[n8][e] * (gradient[n8][e] - (e % 2 ? pair.w : pair.y));
      }
      fragments[k] = as_a<T>(weight[2 * k], weight[2 * k + 1]);
      dfragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    }
  }
  /// The second half of a tile, whose gradients had to wait for the registers of the last tile's
  /// fragments. The stages of the tile before take what comes next.
  __device__ void finish(int tile) {
    read_shifts(kN8 / 2);
    start_dweights(tile);
    __syncthreads();  // the stages of the tile before are free
    const int ahead = tile + Smem::kStages - 1;
    if (warp == 0) {
      if (tile > 0 && ahead < tiles && elect_one()) load.lse_delta(ahead, stage_before);
    } else if (warp == 1) {
      if (tile > 0 && ahead < tiles && elect_one()) load.q(ahead, stage_before);
    } else if (warp == 2) {
      if (tile > 0 && ahead < tiles && elect_one()) load.vectors(ahead, stage_before);
    } else {
      if (tile > 0 && tile + 1 < tiles && elect_one()) load.dout(tile + 1);
      // The sums that follow find room where these blocks leave some, and need nothing of theirs.
      if (kDirect && params.base.adds_to_dk && tile == kTileOfWait) {
        pdl_wait();
        pdl_launch_dependents();
      }
    }
    weigh(kN8 / 2);
    wgmma_wait<0>();
    fence_accumulators(gradient);
    make_fragments();
  }
};

#endif

/// `Exact`: as above.
template <class T, BiasForm Form, bool Exact>
__global__ void __launch_bounds__(kThreads, 3)
    bwd_dkdv_kernel(const __grid_constant__ BackwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Smem = BwdDkDvSmem<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  // Aligned by the compiler: three blocks leave no room to do so here.
  extern __shared__ __align__(kSharedAlignment) unsigned char keys_memory[];
  const AttentionParams& p = params.base.forward;
  const auto& g = p.geometry;
  const int row_tiles = kDirect ? params.squares.tiles : g.padded_tokens / kRowTile;
  const int tiles = (g.tokens + kRowTile - 1) / kRowTile;
  const BlockCoord coord(g, row_tiles);
  const Lane lane;
  const int warp = warp_uniform(threadIdx.x / 32);
  const int first_row = coord.row_tile * kRowTile;
  SquareTiling::Place own{};
  if constexpr (kDirect) own = params.squares.place(coord.row_tile);
  const BwdDkDvLoads<T, Form> load{params, coord, first_row, own, {keys_memory}};
  const bool by_prefix = kDirect && !own.in_grid;

  if (threadIdx.x == 0) load.prepare();
  fence_barrier_init();
  __syncthreads();
  load.first_tile(warp);
  // Unless stage 1's backward pass has come between.
  if (!params.base.adds_to_dk) pdl_wait();
  if (warp == 0 && elect_one()) load.lse_delta(0, 0);
  const KeysBias<T, Exact> bias(kDirect ? bias_ratio(p, coord.head) : 0.0F, own.in_grid);
  constexpr int kN8 = kTileColumns / 8;
  const float scale = p.scale * kLog2E;
  float weight[kN8][4], gradient[kN8][4], dk[8][4] = {}, dv[8][4] = {};
  FragmentA<T> fragments[kN8 / 2], dfragments[kN8 / 2];
  int stage = 0, stage_before = 0, phase = 0;
  float shifts[kN8 / 2][2];
  BwdDkDvTile<T, Form, Exact> t{params,    load,       load.smem, tiles,    warp,         bias,
                                lane,      scale,      weight,    gradient, dk,           dv,
                                fragments, dfragments, shifts,    stage,    stage_before, phase};

  mbarrier_wait(t.smem.rows_full(), 0);
  t.wait_queries();
  t.read_shifts(0);
  t.start_scores();
  load.following_tiles(warp, tiles);
  t.wait_dout(0);
  wgmma_wait<0>();
  fence_accumulators(t.weight);
  t.weigh(0);
  t.finish(0);
  for (int tile = 1; tile < tiles; ++tile) {
    t.stage_before = t.stage;
    if (++t.stage == Smem::kStages) {
      t.stage = 0;
      t.phase ^= 1;
    }
    t.wait_queries();
    t.read_shifts(0);
    fence_accumulators(t.dv);
    fence_accumulators(t.dk);
    t.start_scores();
    t.start_sums(t.dout_stage(tile - 1), t.stage_before);  // of the tile before
    wgmma_commit();
    t.wait_dout(tile);
    wgmma_wait<1>();
    fence_accumulators(t.weight);
    t.weigh(0);
    if constexpr (!kDirect) keep_instruction_order();
    wgmma_wait<0>();
    fence_accumulators(t.dk);
    fence_accumulators(t.dv);
    fence_operands(t.fragments);
    fence_operands(t.dfragments);
    t.finish(tile);
  }
  if constexpr (kDirect) {
    pdl_wait();
    pdl_launch_dependents();
  }
  fence_accumulators(t.dv);
  fence_accumulators(t.dk);
  wgmma_fence();
  t.start_sums((tiles - 1) % Smem::kDoutStages, t.stage);
  wgmma_commit_and_wait();
  fence_accumulators(t.dk);
  fence_accumulators(t.dv);
  __syncthreads();  // nobody reads k and v any more
  const auto store = [&](const View& view, const CUtensorMap& map, const CUtensorMap& prefix_map,
                         const Tile<T>& tile, const float(&c)[8][4], float factor, bool adds) {
    store_rows(view, tile, c, factor, [&](int first) {
      if (adds && !by_prefix)
        return tma_reduce_add(map, load.own_coord(first), tile.data + first * 128);
      tma_store(by_prefix ? prefix_map : map, load.own_coord(first), tile.data + first * 128);
    });
  };
  store(params.base.dk, params.dk, params.dk_prefix, load.smem.k(), t.dk, p.scale,
        params.base.adds_to_dk);
  store(params.base.dv, params.dv, params.dv_prefix, load.smem.v(), t.dv, 1.0F, false);
  tma_store_wait();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
