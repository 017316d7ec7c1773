#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bias_gradient.cuh"
#include "kernels/cuda/attention_sm90/direct/short_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

#include <cstddef>
#include <type_traits>

/// Shared memory of the dq pass (bwd_dq.cuh), and how its blocks begin to fill it.
namespace sape2::kernels::cuda::sm90 {

/// Behind it lie panels of 64 queries' vectors, whose number is known at run time only: of x one
/// for each part of the grid's columns, then of y. Of short rows x's is smaller and has a matrix
/// behind it (ShortDirect).
template <BiasForm Form>
struct alignas(kSharedAlignment) BwdDqSmem {
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kKStages = 3, kVStages = 2, kBarriers = kKStages + kVStages + 2;
  struct Ones {
    unsigned char rows[RowSums<0>::kBytes];
  };
  struct NoOnes {};

  unsigned char q[kTileBytes], dout[kTileBytes];
  unsigned char kv[kKStages + kVStages][kTileBytes];
  [[no_unique_address]] std::conditional_t<kDirect, Ones, NoOnes> ones;
  float delta[kRowTile];  // then for a sum over the block
  Mbarrier kv_full[kKStages + kVStages], rows_full, dout_full;

  __host__ __device__ static int x_panels(const KeyTiling& columns) {
    return kDirect ? columns.parts : 0;
  }
  __host__ __device__ static int y_panels(const KeyTiling& columns) {
    return kDirect ? (columns.down + 63) / 64 : 0;
  }
  /// With the panels.
  __host__ __device__ static int bytes(const KeyTiling& columns) {
    return int(sizeof(BwdDqSmem)) + (x_panels(columns) + y_panels(columns)) * kTileBytes;
  }
};

/// What lies where in it, as places in bytes that are added to its beginning.
template <class T, BiasForm Form>
struct BwdDqSmemView {
  using Smem = BwdDqSmem<Form>;
  static constexpr int kKv = offsetof(Smem, kv), kOnes = offsetof(Smem, ones);
  static constexpr int kDelta = offsetof(Smem, delta), kKvFull = offsetof(Smem, kv_full);
  unsigned char* memory;

  __device__ Tile<T> q() const { return {memory, kRowTile, 64}; }
  __device__ Tile<T> dout() const { return {memory + kTileBytes, kRowTile, 64}; }
  __device__ unsigned char* kv() const { return memory + kKv; }
  __device__ unsigned char* ones() const { return memory + kOnes; }
  __device__ float* delta() const { return reinterpret_cast<float*>(memory + kDelta); }
  __device__ Mbarrier* kv_full() const { return reinterpret_cast<Mbarrier*>(memory + kKvFull); }
  __device__ Mbarrier* rows_full() const { return kv_full() + Smem::kBarriers - 2; }
  __device__ Mbarrier* dout_full() const { return rows_full() + 1; }
  __device__ unsigned char* panels() const { return memory + sizeof(Smem); }
};

/// `Whole`: see bwd_dq_kernel.
template <class T, BiasForm Form, int RowN8, bool Whole>
struct BwdDqLoads {
  using Smem = BwdDqSmem<Form>;
  using Short = ShortDirect<T, RowN8>;
  using Keys = KvPipeline<T, Form, Smem::kKStages, Smem::kVStages, BackwardParams,
                          Whole ? kTileRows<RowN8> : 0>;
  static constexpr bool kDirect = Form == BiasForm::direct, kShort = Whole && Short::kServes;
  const BackwardParams& params;
  const KeyTiling& columns;
  const BlockCoord& block;
  const Keys& keys;
  BwdDqSmemView<T, Form> smem;
  int first_row;
  int x_panels, y_panels;
  unsigned char *panels_x, *panels_y;
  unsigned char* matrix;  // of short rows

  /// What threads write themselves, before a barrier.
  __device__ void prepare() const {
    if (columns.part_width * columns.rows_per_tile < columns.width)
      clear_shared(smem.kv(), sizeof(Smem::kv));
    if constexpr (kDirect) RowSums<RowN8>::template write<T>(smem.ones(), columns);
    if constexpr (kShort) Short::write_matrix(matrix, bias_ratio(params.base.forward, block.head));
    if (threadIdx.x == 0) {
      prefetch_tensormaps(params.q, params.dout, params.k, params.v);
      if constexpr (kDirect) prefetch_tensormaps(kShort ? params.short_x : params.x, params.y);
      for (int i = 0; i < Smem::kBarriers; ++i) mbarrier_init(smem.kv_full() + i);
    }
  }
  /// By one thread. What is needed first comes first: all blocks begin at once, and memory takes a
  /// while.
  __device__ void first_tile() const {
    mbarrier_expect_tx(smem.rows_full(), (1 + y_panels) * kTileBytes +
                                             (kShort ? Short::kBytes : x_panels * kTileBytes));
    tma_load(smem.q().data, params.q, block.tokens(first_row), smem.rows_full());
    keys.load_k(0);
    if constexpr (kShort) {
      tma_load(panels_x, params.short_x, block.vectors(first_row), smem.rows_full());
    } else {
      for (int panel = 0; panel < x_panels; ++panel)
        tma_load(panels_x + panel * kTileBytes, params.x,
                 block.vectors(first_row, panel * columns.part_width), smem.rows_full());
    }
    for (int panel = 0; panel < y_panels; ++panel)
      tma_load(panels_y + panel * kTileBytes, params.y, block.vectors(first_row, panel * 64),
               smem.rows_full());
    mbarrier_expect_tx(smem.dout_full(), kTileBytes);
    tma_load(smem.dout().data, params.dout, block.tokens(first_row), smem.dout_full());
    keys.load_v(0);
  }
};

}  // namespace sape2::kernels::cuda::sm90
