#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/forward_tile.cuh"
#include "kernels/cuda/attention_sm90/direct/square_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/lazy_softmax.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention forward on Hopper without bias or with a direct one: one warpgroup takes 64 queries of
/// a head and walks over all keys.
namespace sape2::kernels::cuda::sm90 {

/// Blocks a multiprocessor: as many as registers allow.
template <BiasForm Form, int RowN8, KeyTiles Tiles>
inline constexpr int kForwardBlocks =
    Form == BiasForm::none || Tiles == KeyTiles::whole_squares || kTileN8<RowN8> < 8 ? 4 : 3;

template <class T, BiasForm Form, int RowN8, KeyTiles Tiles>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<Form, RowN8, Tiles>)
    forward_kernel(const __grid_constant__ ForwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Smem = ForwardSmem<Form>;
  using Loads = ForwardLoads<T, Form, RowN8, Tiles>;
  using Steps = ForwardTile<T, Form, RowN8, Tiles>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Steps::kDirect, kInSquares = Steps::kInSquares;
  constexpr bool kByRows = Steps::kByRows, kWholeRows = Steps::kWholeRows;
  constexpr int kN8 = Steps::kN8;
  extern __shared__ __align__(kSharedAlignment) unsigned char forward_memory[];
  const AttentionParams& p = params.base;
  const auto& g = p.geometry;
  const auto& columns = params.columns;
  const BlockCoord block(g, g.padded_tokens / kRowTile);
  const int warp = warp_uniform(threadIdx.x / 32);
  const int first_row = block.row_tile * kRowTile;
  const int own_row = first_row + threadIdx.x / 32 * 16 + Lane().g;

  const ForwardSmemView<Form> smem{forward_memory};
  unsigned char *const rows = smem.rows(), *const panels = smem.panels();
  const int y_panels = Smem::y_panels(columns);
  const int panel_bytes = kInSquares ? SquarePanels::vector_bytes(columns) : y_panels * kTileBytes;
  const typename Loads::Keys keys{params, block, smem.kv_stages(), smem.full()};
  const Loads load{params, columns, block, keys, smem, first_row, y_panels, panel_bytes};
  load.prepare();
  fence_barrier_init();
  __syncthreads();
  // The launch before made the vectors; without any it may be another call's.
  if constexpr (kDirect) load.tokens();
  pdl_wait();
  if constexpr (!kDirect) load.tokens();
  load.vectors();

  [[maybe_unused]] const SquareBias<T> square_bias(panels, columns);
  [[maybe_unused]]
  typename Steps::Direct direct(columns, kByRows ? bias_ratio(p, block.head) : 0.0F, nullptr);
  [[maybe_unused]] const RowsY<T, RowN8> rows_y(panels);
  [[maybe_unused]] const float y_factor = kByRows ? bias_factor(p, block.head) * kLog2E : 0.0F;
  KeyTiling::Place at{0, 0, true};
  ColumnMask<kN8> mask;
  ScoreSoftmax softmax(p.scale * kLog2E);
  float scores[kN8][4], weights[kN8][4], out[8][4] = {};
  FragmentA<T> fragments[kN8 / 2];
  const Steps steps{p,      block,    columns, keys,    rows,   own_row, warp, square_bias, direct,
                    rows_y, y_factor, mask,    softmax, scores, weights, out,  fragments,   at};

  mbarrier_wait(smem.rows_full(), 0);
  if constexpr (kWholeRows) direct.begin_part(p, block, own_row, 0);
  steps.first_tile();
  // Two at a time: which stage is whose is then known beforehand.
  static_assert(Smem::kKStages == 2 && Smem::kVStages == 2);
  for (int two = 0; 2 * two + 1 < columns.tiles; ++two) {
    steps.attend(2 * two + 1);
    if (2 * two + 2 >= columns.tiles) break;
    steps.attend(2 * two + 2);
  }
  if constexpr (kDirect) pdl_launch_dependents();
  steps.finish();
  steps.normalise();
  store_tokens(p.out, params.out, block, Tile<T>{rows, kRowTile, 64}, out, 1.0F, first_row);
  tma_store_wait();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
