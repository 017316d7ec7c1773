#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// Tiles of keys for kernels that start a tile's scores while the tile before is still in work: k
/// and v come and go at different times, so each has a ring and barriers of its own.
namespace sape2::kernels::cuda::sm90 {

/// `WholeRows`: where tiles of the grid are all there is, the grid rows of each; else 0.
template <class T, BiasForm Form, int KStages, int VStages, class Params, int WholeRows = 0>
struct KvPipeline {
  static constexpr int kTile = kTileBytes;
  const Params& params;
  const BlockCoord& block;
  unsigned char* data;
  Mbarrier* full;

  __device__ Tile<T> k(int number) const {
    return {data + unsigned(number) % KStages * kTile, kRowTile, 64};
  }
  __device__ Tile<T> v(int number) const {
    return {data + (KStages + unsigned(number) % VStages) * kTile, kRowTile, 64};
  }
  /// Their shared-memory descriptors.
  __device__ std::uint64_t k_matrix(int number) const {
    return smem_descriptor(shared_address(data) + unsigned(number) % KStages * kTile);
  }
  __device__ std::uint64_t v_matrix(int number) const {
    return smem_descriptor(shared_address(data) + (KStages + unsigned(number) % VStages) * kTile);
  }
  __device__ void wait_k(int number) const {
    mbarrier_wait(full + unsigned(number) % KStages, unsigned(number) / KStages);
  }
  __device__ void wait_v(int number) const {
    mbarrier_wait(full + KStages + unsigned(number) % VStages, unsigned(number) / VStages);
  }
  /// One thread starts a copy; nothing happens beyond the last tile.
  __device__ void load_k(int number) const {
    load(k(number), full + unsigned(number) % KStages, number, params.k, params.k_prefix);
  }
  __device__ void load_v(int number) const {
    load(v(number), full + KStages + unsigned(number) % VStages, number, params.v, params.v_prefix);
  }
  /// The same of a tile whose place is known.
  __device__ void load_k(int number, const KeyTiling::Place& at) const {
    load(k(number), full + unsigned(number) % KStages, number, params.k, params.k_prefix, at);
  }
  __device__ void load_v(int number, const KeyTiling::Place& at) const {
    load(v(number), full + KStages + unsigned(number) % VStages, number, params.v, params.v_prefix,
         at);
  }
  /// All but the first tile.
  __device__ void load_following() const {
    for (int number = 1; number < max(KStages, VStages); ++number) {
      if (number < KStages) load_k(number);
      if (number < VStages) load_v(number);
    }
  }

 private:
  __device__ void load(const Tile<T>& to, Mbarrier* barrier, int number, const CUtensorMap& grid,
                       const CUtensorMap& prefix) const {
    if constexpr (Form == BiasForm::direct && WholeRows == 0) {
      load(to, barrier, number, grid, prefix, params.columns.place(number));
    } else {
      load(to, barrier, number, grid, prefix, {});
    }
  }
  __device__ void load(const Tile<T>& to, Mbarrier* barrier, int number, const CUtensorMap& grid,
                       const CUtensorMap& prefix, const KeyTiling::Place& at) const {
    const auto& columns = params.columns;
    if (number >= columns.tiles) return;
    if constexpr (WholeRows > 0) {
      mbarrier_expect_tx(barrier, columns.width * 128);
      tma_load(to.data, grid, {0, 0, number * WholeRows, block.head, block.image}, barrier);
    } else if constexpr (Form == BiasForm::direct) {
      mbarrier_expect_tx(barrier, keys_bytes(columns, at));
      tma_load(to.data, at.in_grid ? grid : prefix, keys_coord(block, columns, at), barrier);
    } else {
      mbarrier_expect_tx(barrier, kTile);
      tma_load(to.data, grid, block.tokens(number * kRowTile), barrier);
    }
  }
};

}  // namespace sape2::kernels::cuda::sm90
