#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// A block's shared memory in the forward pass of the distance form, and what comes into it
/// (attention_sm90/distance/forward.cuh).
namespace sape2::kernels::cuda::sm90 {

/// Places in shared memory, in bytes from its beginning. With a tile's y and keys come the next
/// tile's x and the values of the tile before.
template <int Steps>
struct DistanceForwardSmem {
  enum Barrier { rows, arrived, read, kBarriers };
  static constexpr int kVectorRow = Steps > 2 ? 128 : 64;
  static constexpr int kVectorBytes = kRowTile * kVectorRow, kNormBytes = kRowTile * 4;
  static constexpr int kOwnX = 0;
  static constexpr int kOwnY = kOwnX + kVectorBytes;
  static constexpr int kQueries = kOwnY + kVectorBytes;
  static constexpr int kWeights = kQueries + kTileBytes;
  static constexpr int kKeys = kWeights + kTileBytes;
  static constexpr int kValues = kKeys + kTileBytes;
  static constexpr int kY = kValues + kTileBytes;
  static constexpr int kX = kY + kVectorBytes;          // of even tiles, of odd ones
  static constexpr int kNorms = kX + 2 * kVectorBytes;  // squared lengths of x and y, likewise
  static constexpr int kBarrier = kNorms + 4 * kNormBytes;
  static constexpr int kBytes = kBarrier + kBarriers * 8;

  __host__ __device__ static constexpr int x(int tile) { return kX + tile % 2 * kVectorBytes; }
  __host__ __device__ static constexpr int norms(int tile, int axis) {
    return kNorms + (tile % 2 * 2 + axis) * kNormBytes;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Aligned for swizzled tiles, so that all places are known to the compiler.
extern __shared__ __align__(kSharedAlignment) unsigned char distance_forward_memory[];

/// `Steps`: sixteens of a vector's entries.
template <int Steps>
struct DistanceForwardBlock {
  using Smem = DistanceForwardSmem<Steps>;
  static constexpr int kColumns = kRowTile;

  const ForwardParams& params;
  const AttentionParams& p;
  const Geometry& g;
  BlockCoord block;
  int tiles, first_row, warp;

  __device__ explicit DistanceForwardBlock(const ForwardParams& all)
      : params(all),
        p(all.base),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        tiles((g.tokens + kColumns - 1) / kColumns),
        first_row(block.row_tile * kRowTile),
        warp(warp_uniform(threadIdx.x / 32)) {}

  __device__ static unsigned char* at(int place) { return distance_forward_memory + place; }
  /// wgmma's names.
  __device__ static std::uint64_t matrix(int place) {
    return smem_descriptor(shared_address(distance_forward_memory)) + place / 16;
  }
  __device__ static std::uint64_t vectors(int place) {
    return smem_descriptor<Smem::kVectorRow>(shared_address(distance_forward_memory)) + place / 16;
  }
  __device__ static Mbarrier* barrier(int which) {
    return reinterpret_cast<Mbarrier*>(at(Smem::kBarrier)) + which;
  }

  // --------------------------------------------------------------- copies, started by one thread

  __device__ void prepare() const {
    prefetch_tensormaps(params.q, params.k, params.v, params.x, params.y, params.norm_x,
                        params.norm_y);
    mbarrier_init(barrier(Smem::rows));
    for (const int each_warp : {Smem::arrived, Smem::read})
      mbarrier_init(barrier(each_warp), kWarps);
  }
  /// What comes with a tile, a quarter by each warp.
  enum Quarter { y, keys, values_before, next_x };
  /// Where a quarter comes from and goes to, so that all warps do the same.
  struct Share {
    const CUtensorMap *map, *norm_map;  // of vectors also their squared lengths
    int ahead;                          // how many tiles
    int place, norm_place, bytes;
    int stride, norm_stride;  // to the place for odd tiles
    int head, image;
  };
  __device__ Share share(int quarter) const {
    const bool vectors = quarter == y || quarter == next_x;
    const int axis = quarter == y;
    return {.map = quarter == y        ? &params.y
                   : quarter == keys   ? &params.k
                   : quarter == next_x ? &params.x
                                       : &params.v,
            .norm_map = axis ? &params.norm_y : &params.norm_x,
            .ahead = quarter == next_x          ? 1
                     : quarter == values_before ? -1
                                                : 0,
            .place = quarter == y        ? Smem::kY
                     : quarter == keys   ? Smem::kKeys
                     : quarter == next_x ? Smem::kX
                                         : Smem::kValues,
            .norm_place = Smem::kNorms + axis * Smem::kNormBytes,
            .bytes = vectors ? Smem::kVectorBytes + Smem::kNormBytes : kTileBytes,
            .stride = quarter == next_x ? Smem::kVectorBytes : 0,
            .norm_stride = vectors ? 2 * Smem::kNormBytes : 0,
            .head = vectors ? int(block.batch_head) : block.head,
            .image = vectors ? 0 : block.image};
  }
  /// The warp's own, to be kept: else the compiler works it out again for every tile.
  __device__ Share kept_share() const {
    Share own = share(warp);
    asm volatile(""
                 : "+r"(own.ahead), "+r"(own.place), "+r"(own.norm_place), "+r"(own.bytes),
                   "+r"(own.stride), "+r"(own.norm_stride));
    return own;
  }
  __device__ void load(int tile, const Share& share) const {
    Mbarrier* const to = barrier(Smem::arrived);
    const unsigned of = tile + share.ahead;
    const bool exists = of < unsigned(tiles);
    mbarrier_expect_tx(to, exists ? share.bytes : 0);
    if (!exists) return;
    tma_load(at(share.place + of % 2 * share.stride), *share.map,
             {0, int(of * kColumns), 0, share.head, share.image}, to);
    if (share.norm_stride > 0)
      tma_load(at(share.norm_place + of % 2 * share.norm_stride), *share.norm_map,
               {int(of * kColumns), 0, 0, share.head, 0}, to);
  }
  /// To begin with what was there before the launch in front, then what that one made.
  __device__ void load_old() const {
    mbarrier_expect_tx(barrier(Smem::rows), 3 * Smem::kVectorBytes + Smem::kNormBytes + kTileBytes);
    tma_load(at(Smem::kQueries), params.q, block.tokens(first_row), barrier(Smem::rows));
    load(0, share(keys));
  }
  __device__ void load_new() const {
    Mbarrier* const to = barrier(Smem::rows);
    tma_load(at(Smem::kOwnX), params.x, block.vectors(first_row), to);
    tma_load(at(Smem::x(0)), params.x, block.vectors(0), to);
    tma_load(at(Smem::norms(0, 0)), params.norm_x, block.scalars(0, 1), to);
    tma_load(at(Smem::kOwnY), params.y, block.vectors(first_row), to);
    for (const int quarter : {y, values_before, next_x}) load(0, share(quarter));
  }
  /// Once all warps' products of a tile are done, the next one comes. Warps stay whole: where lanes
  /// part, the compiler computes matrices' names lane by lane.
  __device__ void replace(int tile, const Share& share) const {
    __syncwarp();
    if (elect_one()) mbarrier_arrive(barrier(Smem::read));
    mbarrier_wait(barrier(Smem::read), tile);
    if (elect_one()) load(tile + 1, share);
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
