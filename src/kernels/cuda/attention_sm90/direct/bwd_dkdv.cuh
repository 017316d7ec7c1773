#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dkdv_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward on Hopper, keys along rows: one warpgroup takes 64 keys (with a direct bias a
/// square of the grid, see SquareTiling), walks over all queries and gathers dk and dv. No bias,
/// or the direct form.
namespace sape2::kernels::cuda::sm90 {

/// Places in shared memory, in bytes from its beginning. Of a tile of queries dout is needed later
/// than the rest and has stages of its own.
template <BiasForm Form>
struct BwdDkDvSmem {
  static constexpr int kStages = 3, kDoutStages = 2;
  static constexpr int kVectorBytes = Form == BiasForm::direct ? kRowTile * 16 : 0;  // of x, of y
  static constexpr int kLseDeltaBytes = kRowTile * 8;  // pairs of lse (base 2) and delta
  static constexpr int kCopied = kTileBytes + 2 * kVectorBytes + kLseDeltaBytes;  // all but dout
  static constexpr int kK = 0, kV = kK + kTileBytes;
  static constexpr int kQ = kV + kTileBytes, kDout = kQ + kStages * kTileBytes;
  static constexpr int kX = kDout + kDoutStages * kTileBytes, kY = kX + kStages * kVectorBytes;
  static constexpr int kLseDelta = kY + kStages * kVectorBytes;
  static constexpr int kFull = kLseDelta + kStages * kLseDeltaBytes;
  static constexpr int kDoutFull = kFull + kStages * 8;
  static constexpr int kRowsFull = kDoutFull + kDoutStages * 8;
  static constexpr int kBytes = kRowsFull + 8;
};

/// `Exact`: from bias to scores is a number of type T.
template <class T, BiasForm Form, bool Exact>
__global__ void __launch_bounds__(kThreads, 3)
    bwd_dkdv_kernel(const __grid_constant__ BackwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = BwdDkDvSmem<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr int kN8 = kTileColumns / 8;
  // The tile by which the launch before is likely done, and nobody waits for it in vain.
  constexpr int kTileOfWait = 2;
  // Aligned by the compiler: three blocks leave no room to do so here.
  extern __shared__ __align__(kSharedAlignment) unsigned char keys_memory[];
  const AttentionParams& p = params.base.forward;
  const auto& g = p.geometry;
  const int row_tiles = kDirect ? params.squares.tiles : g.padded_tokens / kRowTile;
  const int tiles = (g.tokens + kRowTile - 1) / kRowTile;
  const BlockCoord block(g, row_tiles);
  const Lane lane;
  const int warp = warp_uniform(threadIdx.x / 32);

  const auto barriers = [](int place) { return reinterpret_cast<Mbarrier*>(keys_memory + place); };
  Mbarrier* const full = barriers(Layout::kFull);
  Mbarrier* const dout_full = barriers(Layout::kDoutFull);
  Mbarrier* const rows_full = barriers(Layout::kRowsFull);
  const Tile<T> k_rows{keys_memory + Layout::kK, kRowTile, 64};
  const Tile<T> v_rows{keys_memory + Layout::kV, kRowTile, 64};
  // Shared-memory descriptors of places in this memory.
  const auto matrix = [](int place) {
    return smem_descriptor(shared_address(keys_memory) + std::uint32_t(place));
  };
  const auto q_tile = [&](int stage) { return matrix(Layout::kQ + stage * kTileBytes); };
  const auto dout_tile = [&](int stage) { return matrix(Layout::kDout + stage * kTileBytes); };

  const int first_row = block.row_tile * kRowTile;
  SquareTiling::Place own{};
  if constexpr (kDirect) own = params.squares.place(block.row_tile);
  // Where the block's keys from number `first` on, a multiple of 8, come from and go to.
  const auto own_coord = [&](int first = 0) -> TmaCoord {
    if constexpr (!kDirect) return block.tokens(first_row + first);
    if (!own.in_grid) return block.tokens(own.column + first);
    return {0, own.column, own.row + first / SquareTiling::kSide, block.head, block.image};
  };
  const auto load_q = [&](int tile, int stage) {
    mbarrier_expect_tx(full + stage, Layout::kCopied);
    tma_load(keys_memory + Layout::kQ + stage * kTileBytes, params.q, block.tokens(tile * kRowTile),
             full + stage);
  };
  const auto load_vectors = [&](int tile, int stage) {
    if constexpr (kDirect) {
      const int first = tile * kRowTile, offset = stage * Layout::kVectorBytes;
      tma_load(keys_memory + Layout::kX + offset, params.x_eight,
               block.vectors(first, own.in_grid ? own.column : 0), full + stage);
      tma_load(keys_memory + Layout::kY + offset, params.y_eight, block.vectors(first, own.row),
               full + stage);
    }
  };
  // The dq pass makes them, mostly the launch before.
  const auto load_lse_delta = [&](int tile, int stage) {
    tma_load(keys_memory + Layout::kLseDelta + stage * Layout::kLseDeltaBytes, params.lse_delta,
             block.scalars(tile * kRowTile, 2), full + stage);
  };
  const auto load_dout = [&](int tile, int bytes = kTileBytes) {
    const int stage = unsigned(tile) % Layout::kDoutStages;
    mbarrier_expect_tx(dout_full + stage, bytes);
    tma_load(keys_memory + Layout::kDout + stage * kTileBytes, params.dout,
             block.tokens(tile * kRowTile), dout_full + stage);
  };
  if (threadIdx.x == 0) {
    prefetch_tensormaps(params.k_rows, params.v_rows, params.q, params.dout, params.lse_delta);
    if constexpr (kDirect) prefetch_tensormaps(params.x_eight, params.y_eight);
    for (int i = 0; i < Layout::kStages; ++i) mbarrier_init(full + i);
    for (int i = 0; i < Layout::kDoutStages; ++i) mbarrier_init(dout_full + i);
    mbarrier_init(rows_full);
  }
  fence_barrier_init();
  __syncthreads();
  // All blocks begin at once, and memory serves them for longer than a tile takes: what the first
  // tile needs comes first, and the rest when that is there.
  const bool by_prefix = kDirect && !own.in_grid;
  if (elect_one()) {
    if (warp == 0) {
      mbarrier_expect_tx(rows_full, kTileBytes);
      tma_load(k_rows.data, by_prefix ? params.k_rows_prefix : params.k_rows, own_coord(),
               rows_full);
    }
    if (warp == 1) load_q(0, 0);
    if (warp == 2) load_vectors(0, 0);
    if (warp == 3) {
      load_dout(0, 2 * kTileBytes);  // with v
      tma_load(v_rows.data, by_prefix ? params.v_rows_prefix : params.v_rows, own_coord(),
               dout_full);
    }
  }
  // Unless stage 1's backward pass has come between.
  if (!params.base.adds_to_dk) pdl_wait();
  if (warp == 0 && elect_one()) load_lse_delta(0, 0);
  const auto load_following = [&] {
#pragma unroll
    for (int tile = 1; tile < Layout::kStages; ++tile) {
      if (tile >= tiles) continue;
      if (warp == 0) {
        if (elect_one()) load_lse_delta(tile, tile);
      } else if (warp == 1) {
        if (elect_one()) load_q(tile, tile);
      } else if (warp == 2) {
        if (elect_one()) load_vectors(tile, tile);
      } else {
        if (tile < Layout::kDoutStages && elect_one()) load_dout(tile);
      }
    }
  };

  const float scale = p.scale * kLog2E;
  [[maybe_unused]] const KeysBias<T, Exact> bias(kDirect ? bias_ratio(p, block.head) : 0.0F,
                                                 own.in_grid);
  float weight[kN8][4], gradient[kN8][4], dk[8][4] = {}, dv[8][4] = {};
  FragmentA<T> fragments[kN8 / 2], dfragments[kN8 / 2];
  int stage = 0, stage_before = 0,
      phase = 0;  // pipeline stage of this tile's q, lse and delta; of the last one
  const auto start_scores = [&] {
    wgmma_fence();
    if constexpr (kDirect)
      bias.start(weight, smem_descriptor_unswizzled(shared_address(keys_memory) + Layout::kX +
                                                        stage * Layout::kVectorBytes,
                                                    Layout::kY - Layout::kX));
    start_wgmma_ss<T, 4, kDirect>(weight, matrix(Layout::kK), q_tile(stage));
    wgmma_commit();
  };
  const auto wait_queries = [&] {
    mbarrier_wait(full + stage, phase);
    fence_accumulators(weight);
  };
  // Of two neighbouring queries, lse (base 2) and delta.
  const auto lse_delta_of = [&](int n8) {
    return reinterpret_cast<const float4*>(keys_memory + Layout::kLseDelta +
                                           stage * Layout::kLseDeltaBytes)[n8 * 4 + lane.t];
  };
  // Half a tile's lse (base 2), read before products start: beside those memory answers slowly.
  float shifts[kN8 / 2][2];
  const auto read_shifts = [&](int first_n8) {
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i) {
      const float4 pair = lse_delta_of(first_n8 + i);
      shifts[i][0] = pair.x;
      shifts[i][1] = pair.z;
    }
  };
  const auto weigh = [&](int first_n8) {
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = weight[first_n8 + i][e];
        score = power_of_2(fmaf(score, scale, -shifts[i][e % 2]));
      }
    fence_accumulators(weight);
  };
  // The second half of a tile: its gradients, which had to wait for the registers of the last
  // tile's fragments. Weights and their gradients become fragments together, so that few numbers
  // wait at once. The stages of the tile before take what comes next.
  const auto make_fragments = [&](int tile) {
    read_shifts(kN8 / 2);
    wgmma_fence();
    start_wgmma_ss<T>(gradient, matrix(Layout::kV),
                      dout_tile(unsigned(tile) % Layout::kDoutStages));
    wgmma_commit();
    __syncthreads();  // the stages of the tile before are free
    const int ahead = tile + Layout::kStages - 1;
    if (warp == 0) {
      if (tile > 0 && ahead < tiles && elect_one()) load_lse_delta(ahead, stage_before);
    } else if (warp == 1) {
      if (tile > 0 && ahead < tiles && elect_one()) load_q(ahead, stage_before);
    } else if (warp == 2) {
      if (tile > 0 && ahead < tiles && elect_one()) load_vectors(ahead, stage_before);
    } else {
      if (tile > 0 && tile + 1 < tiles && elect_one()) load_dout(tile + 1);
      // The sums that follow find room where these blocks leave some, and need nothing of theirs.
      if (kDirect && params.base.adds_to_dk && tile == kTileOfWait) {
        pdl_wait();
        pdl_launch_dependents();
      }
    }
    weigh(kN8 / 2);
    wgmma_wait<0>();
    fence_accumulators(gradient);
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
  };

  mbarrier_wait(rows_full, 0);
  wait_queries();
  read_shifts(0);
  start_scores();
  load_following();
  mbarrier_wait(dout_full, 0);
  wgmma_wait<0>();
  fence_accumulators(weight);
  weigh(0);
  make_fragments(0);
  for (int tile = 1; tile < tiles; ++tile) {
    stage_before = stage;
    if (++stage == Layout::kStages) {
      stage = 0;
      phase ^= 1;
    }
    wait_queries();
    read_shifts(0);
    fence_accumulators(dv);
    fence_accumulators(dk);
    start_scores();
    start_wgmma_rs<T>(dv, fragments, dout_tile(unsigned(tile - 1) % Layout::kDoutStages));
    start_wgmma_rs<T>(dk, dfragments, q_tile(stage_before));
    wgmma_commit();
    mbarrier_wait(dout_full + unsigned(tile) % Layout::kDoutStages,
                  unsigned(tile) / Layout::kDoutStages);
    wgmma_wait<1>();
    fence_accumulators(weight);
    weigh(0);
    if constexpr (!kDirect) keep_instruction_order();
    wgmma_wait<0>();
    fence_accumulators(dk);
    fence_accumulators(dv);
    fence_operands(fragments);
    fence_operands(dfragments);
    make_fragments(tile);
  }
  if constexpr (kDirect) {
    pdl_wait();
    pdl_launch_dependents();
  }
  fence_accumulators(dv);
  fence_accumulators(dk);
  wgmma_fence();
  start_wgmma_rs<T>(dv, fragments, dout_tile((tiles - 1) % Layout::kDoutStages));
  start_wgmma_rs<T>(dk, dfragments, q_tile(stage));
  wgmma_commit_and_wait();
  fence_accumulators(dk);
  fence_accumulators(dv);

  __syncthreads();  // nobody reads k and v any more
  const auto store = [&](const View& view, const CUtensorMap& map, const CUtensorMap& prefix_map,
                         const Tile<T>& tile, const float(&c)[8][4], float factor, bool adds) {
    store_rows(view, tile, c, factor, [&](int first) {
      if (adds && !by_prefix) return tma_reduce_add(map, own_coord(first), tile.data + first * 128);
      tma_store(by_prefix ? prefix_map : map, own_coord(first), tile.data + first * 128);
    });
  };
  store(params.base.dk, params.dk, params.dk_prefix, k_rows, dk, p.scale, params.base.adds_to_dk);
  store(params.base.dv, params.dv, params.dv_prefix, v_rows, dv, 1.0F, false);
  tma_store_wait();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
