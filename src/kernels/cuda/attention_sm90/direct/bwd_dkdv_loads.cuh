#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

#include <cstddef>
#include <type_traits>

/// Shared memory of the dk, dv pass (bwd_dkdv.cuh), and the producer's side of it: what TMA brings
/// in, and where to.
namespace sape2::kernels::cuda::sm90 {

/// Of a tile of queries dout is needed later than the rest and has stages of its own.
template <BiasForm Form>
struct BwdDkDvSmem {
  static constexpr int kStages = 3, kDoutStages = 2;
  static constexpr int kVectorBytes = kRowTile * 16, kLseDeltaBytes = kRowTile * 8;
  struct Vectors {
    unsigned char x[kStages][kVectorBytes], y[kStages][kVectorBytes];
  };
  struct NoVectors {};
  static constexpr bool kDirect = Form == BiasForm::direct;

  unsigned char k[kTileBytes], v[kTileBytes];
  unsigned char q[kStages][kTileBytes], dout[kDoutStages][kTileBytes];
  [[no_unique_address]] std::conditional_t<kDirect, Vectors, NoVectors> vectors;
  float4 lse_delta[kStages][kRowTile / 2];  // of two queries each: lse (base 2), delta
  Mbarrier full[kStages], dout_full[kDoutStages], rows_full;

  /// Of a stage but for dout.
  static constexpr int kStageBytes = kTileBytes + (kDirect ? 2 * kVectorBytes : 0) + kLseDeltaBytes;
};

/// What lies where in it, as places in bytes that are added to its beginning.
template <class T, BiasForm Form>
struct BwdDkDvSmemView {
  using Smem = BwdDkDvSmem<Form>;
  static constexpr int kK = offsetof(Smem, k), kV = offsetof(Smem, v), kQ = offsetof(Smem, q);
  static constexpr int kDout = offsetof(Smem, dout), kLseDelta = offsetof(Smem, lse_delta);
  static constexpr int kX = offsetof(Smem, vectors), kY = kX + Smem::kStages * Smem::kVectorBytes;
  static constexpr int kFull = offsetof(Smem, full), kDoutFull = offsetof(Smem, dout_full);
  static constexpr int kRowsFull = offsetof(Smem, rows_full);
  unsigned char* memory;

  __device__ Mbarrier* full(int stage) const { return barriers(kFull) + stage; }
  __device__ Mbarrier* dout_full(unsigned stage) const { return barriers(kDoutFull) + stage; }
  __device__ Mbarrier* rows_full() const { return barriers(kRowsFull); }
  __device__ Tile<T> k() const { return {memory + kK, kRowTile, 64}; }
  __device__ Tile<T> v() const { return {memory + kV, kRowTile, 64}; }
  __device__ unsigned char* q(int stage) const { return memory + kQ + stage * kTileBytes; }
  __device__ unsigned char* dout(int stage) const { return memory + kDout + stage * kTileBytes; }
  __device__ unsigned char* x(int stage) const { return memory + kX + stage * Smem::kVectorBytes; }
  __device__ unsigned char* y(int stage) const { return memory + kY + stage * Smem::kVectorBytes; }
  __device__ float4* lse_delta(int stage) const {
    return reinterpret_cast<float4*>(memory + kLseDelta + stage * Smem::kLseDeltaBytes);
  }
  // Shared-memory descriptors.
  __device__ std::uint64_t k_matrix() const { return matrix(kK); }
  __device__ std::uint64_t v_matrix() const { return matrix(kV); }
  __device__ std::uint64_t q_matrix(int stage) const { return matrix(kQ + stage * kTileBytes); }
  __device__ std::uint64_t dout_matrix(int stage) const {
    return matrix(kDout + stage * kTileBytes);
  }
  /// Of x, and of y behind that.
  __device__ std::uint64_t vectors_matrix(int stage) const {
    return smem_descriptor_unswizzled(shared_address(memory) + kX + stage * Smem::kVectorBytes,
                                      kY - kX);
  }

 private:
  __device__ Mbarrier* barriers(int place) const {
    return reinterpret_cast<Mbarrier*>(memory + place);
  }
  __device__ std::uint64_t matrix(int place) const {
    return smem_descriptor(shared_address(memory) + std::uint32_t(place));
  }
};

/// One thread starts each copy.
template <class T, BiasForm Form>
struct BwdDkDvLoads {
  using Smem = BwdDkDvSmem<Form>;
  static constexpr bool kDirect = Form == BiasForm::direct;
  const BackwardParams& params;
  const BlockCoord& block;
  const int& first_row;
  const SquareTiling::Place& own;  // the block's keys in the grid
  BwdDkDvSmemView<T, Form> smem;

  /// Of prefix tokens alone.
  __device__ bool by_prefix() const { return kDirect && !own.in_grid; }
  /// Where the block's keys from number `first` on, a multiple of 8, come from and go to.
  __device__ TmaCoord own_coord(int first = 0) const {
    if constexpr (!kDirect) return block.tokens(first_row + first);
    if (!own.in_grid) return block.tokens(own.column + first);
    return {0, own.column, own.row + first / SquareTiling::kSide, block.head, block.image};
  }
  __device__ void k() const {
    mbarrier_expect_tx(smem.rows_full(), kTileBytes);
    tma_load(smem.k().data, by_prefix() ? params.k_rows_prefix : params.k_rows, own_coord(),
             smem.rows_full());
  }
  /// With the first dout.
  __device__ void v() const {
    tma_load(smem.v().data, by_prefix() ? params.v_rows_prefix : params.v_rows, own_coord(),
             smem.dout_full(0));
  }
  __device__ void q(int tile, int stage) const {
    mbarrier_expect_tx(smem.full(stage), Smem::kStageBytes);
    tma_load(smem.q(stage), params.q, block.tokens(tile * kRowTile), smem.full(stage));
  }
  __device__ void vectors(int tile, int stage) const {
    if constexpr (kDirect) {
      const int first = tile * kRowTile;
      tma_load(smem.x(stage), params.x_eight, block.vectors(first, own.in_grid ? own.column : 0),
               smem.full(stage));
      tma_load(smem.y(stage), params.y_eight, block.vectors(first, own.row), smem.full(stage));
    }
  }
  /// The dq pass makes them, mostly the launch before.
  __device__ void lse_delta(int tile, int stage) const {
    tma_load(smem.lse_delta(stage), params.lse_delta, block.scalars(tile * kRowTile, 2),
             smem.full(stage));
  }
  __device__ void dout(int tile, int bytes = kTileBytes) const {
    const int stage = unsigned(tile) % Smem::kDoutStages;
    mbarrier_expect_tx(smem.dout_full(stage), bytes);
    tma_load(smem.dout(stage), params.dout, block.tokens(tile * kRowTile), smem.dout_full(stage));
  }

  __device__ void prepare() const {
    prefetch_tensormaps(params.k_rows, params.v_rows, params.q, params.dout, params.lse_delta);
    if constexpr (kDirect) prefetch_tensormaps(params.x_eight, params.y_eight);
    for (int i = 0; i < Smem::kStages; ++i) mbarrier_init(smem.full(i));
    for (int i = 0; i < Smem::kDoutStages; ++i) mbarrier_init(smem.dout_full(i));
    mbarrier_init(smem.rows_full());
  }
  /// All blocks begin at once, and memory serves them for longer than a tile takes: what the first
  /// tile needs comes first, and the rest when that is there. All but lse and delta.
  __device__ void first_tile(int warp) const {
    if (elect_one()) {
      if (warp == 0) k();
      if (warp == 1) q(0, 0);
      if (warp == 2) vectors(0, 0);
      if (warp == 3) {
        dout(0, 2 * kTileBytes);
        v();
      }
    }
  }
  __device__ void following_tiles(int warp, int tiles) const {
#pragma unroll
    for (int tile = 1; tile < Smem::kStages; ++tile) {
      if (tile >= tiles) continue;
      if (warp == 0) {
        if (elect_one()) lse_delta(tile, tile);
      } else if (warp == 1) {
        if (elect_one()) q(tile, tile);
      } else if (warp == 2) {
        if (elect_one()) vectors(tile, tile);
      } else {
        if (tile < Smem::kDoutStages && elect_one()) dout(tile);
      }
    }
  }
};

}  // namespace sape2::kernels::cuda::sm90
