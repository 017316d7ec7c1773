#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_fragments.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem_view.cuh"
#include "kernels/cuda/attention_sm90/distance/bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// What the warpgroups of a block share in the backward pass of the distance form
/// (attention_sm90/distance/backward.cuh).
namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// `Steps`: sixteens of entries in the longer of the two vectors; `Walks`: whether the block takes
/// one tile of rows after another.
template <class T, int Steps, bool Walks>
struct DistanceBwdBlock : DistanceBwdSmemView<T, Steps> {
  using Memory = DistanceBwdSmemView<T, Steps>;
  using Smem = DistanceBwdSmem<Steps>;
  using Place = PairTile<Steps>;
  using Fragments = PairFragments<T>;
  static_assert(!Walks || Smem::kHasAllSlots);  // gradients leave by way of them
  using Memory::first_full, Memory::items_empty, Memory::items_full, Memory::first_lengths,
      Memory::rest_full;
  using Memory::next_lengths, Memory::lse_delta, Memory::other, Memory::own, Memory::own_lengths;
  using Memory::own_lse_delta, Memory::place, Memory::place_empty, Memory::rows_full;
  using Memory::rows_empty;

  const BackwardParams& params;
  const AttentionParams& p;
  const Geometry& g;
  BlockCoord block;
  unsigned phase = 0;  // how many tiles of rows the block had before
  int tiles;
  int warp;                  // of the warpgroup
  std::uint32_t lane_chunk;  // where it would begin to write an item at this memory's beginning
  std::uint64_t matrices;    // the shared-memory descriptor of all this memory
  std::uint64_t vectors;     // the same for vectors

  __device__ explicit DistanceBwdBlock(const BackwardParams& all)
      : params(all),
        p(all.base.forward),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        // The same number, from where the compiler does better with it.
        tiles(Walks ? params.step.all_row_tiles : (g.tokens + kPairColumns - 1) / kPairColumns),
        warp(warp_uniform(threadIdx.x % kThreads / 32)),
        lane_chunk(shared_address(Tile<T>{pairs_memory, kRowTile, 64}.chunk(
            threadIdx.x % kThreads / 32 * 16 + threadIdx.x % 16, threadIdx.x % 32 / 16))),
        matrices(smem_descriptor(shared_address(pairs_memory))),
        vectors(smem_descriptor<Smem::kVectorRow>(shared_address(pairs_memory))) {}

  /// This lane's rows of the block's are this one and that + 8.
  __device__ static int own_row() { return threadIdx.x % kThreads / 32 * 16 + Lane().g; }
  /// Of the bias.
  __device__ float factor(int head) const {
    return per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);
  }
  __device__ std::uint64_t own_matrix(int part) const {
    return (part < Smem::k ? vectors : matrices) + Smem::own(part) / 16;
  }
  __device__ std::uint64_t other_matrix(const Place& tile, int part) const {
    return (part < Smem::k ? vectors : matrices) + tile.offset(part) / 16 + Smem::other(part) / 16;
  }
  /// Sixteen of a tile's vectors, number k, with ones behind their last entry: how far away what
  /// follows a row's bytes lies is part of the name.
  __device__ std::uint64_t vectors_and_ones(const Place& tile, int part, int k) const {
    // A step further on, the ones are a step nearer.
    constexpr std::int64_t kFurther = 1 - (1 << 16);
    const std::int64_t place = Smem::other(part) + 16 * k * Smem::kVectorRow;
    const std::uint64_t in_first_stage =
        vectors + (std::int64_t(Smem::kOnes / 16 - 1) << 16) + place / 16 * kFurther;
    return in_first_stage + std::int64_t(tile.offset(part) / 16) * kFurther;
  }
  /// Of the four lanes that share a row, which one this is: read off an address, where asking for
  /// the thread's number would take longer.
  __device__ int quad() const { return lane_chunk / 128 % 4; }
  // --------------------------------------------------------------- copies, started by one thread

  __device__ void prepare() const {
    prefetch_tensormaps(params.q, params.k_rows, params.v_rows, params.dout, params.x, params.y,
                        params.norm_x, params.norm_y, params.lse_delta);
    for (int i = 0; i < Smem::kFirstStages; ++i) mbarrier_init(first_full(i));
    for (int i = 0; i < Smem::kRestStages; ++i) mbarrier_init(rest_full(i));
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(rows_full(i));
      mbarrier_init(rows_empty(i), kWarps);
      mbarrier_init(items_full(i), kWarps);
    }
    for (int i = 0; i < 3; ++i) mbarrier_init(items_empty(i), kWarps);
    mbarrier_init(place_empty(), 2 * kThreads);
  }
  __device__ void load_lengths(float* to, const BlockCoord& from, int first,
                               Mbarrier* barrier) const {
    tma_load(to, params.norm_x, from.scalars(first, 1), barrier);
    tma_load(to + kPairColumns, params.norm_y, from.scalars(first, 1), barrier);
  }

  // Of a tile, into the stages of `place`: for distances and first scores, then the rest. Nothing
  // counts as arrived before all bytes are expected, whoever starts the copies.

  __device__ static void expect_first(const Place& place) {
    mbarrier_expect_tx(first_full(place.first.stage()), Smem::kFirstBytes);
  }
  __device__ static void expect_rest(const Place& place) {
    mbarrier_expect_tx(rest_full(place.rest.stage()), Smem::kRestBytes + Smem::kNumberBytes);
  }
  __device__ void load(int part, const BlockCoord& from, int first, const Place& place) const {
    const CUtensorMap* const maps[] = {&params.x, &params.y,      &params.k_rows,
                                       &params.q, &params.v_rows, &params.dout};
    tma_load(other(place, part), *maps[part],
             part < Smem::k ? from.vectors(first) : from.tokens(first),
             part <= Smem::k ? first_full(place.first.stage()) : rest_full(place.rest.stage()));
  }
  __device__ void load_lse_delta(const BlockCoord& from, int first, const Place& place) const {
    tma_load(lse_delta(place), params.lse_delta, from.scalars(first, 2),
             rest_full(place.rest.stage()));
  }
  /// Of the tile two further on.
  __device__ void load_next_lengths(const BlockCoord& from, int first, const Place& place) const {
    load_lengths(next_lengths(place), from, first, rest_full(place.rest.stage()));
  }
  // Of the first rows, to begin with.

  __device__ void load_first(int tile) const {
    if (tile >= tiles) return;
    const Place place(tile);
    const int first = tile * kPairColumns;
    expect_first(place);
    load(Smem::x, block, first, place);
    load(Smem::y, block, first, place);
    load(Smem::k, block, first, place);
  }
  __device__ void load_rest(int tile) const {
    if (tile >= tiles) return;
    const Place place(tile);
    const int first = tile * kPairColumns;
    expect_rest(place);
    load(Smem::v, block, first, place);
    load(Smem::q, block, first, place);
    load_lse_delta(block, first, place);
    load_next_lengths(block, min(tile + 2, tiles - 1) * kPairColumns, place);
    load(Smem::dout, block, first, place);
  }
  // A block's own rows, likewise in two halves.

  __device__ void load_own(int part, const BlockCoord& from) const {
    const CUtensorMap& map = part == Smem::q   ? params.q
                             : part == Smem::k ? params.k_rows
                                               : params.v_rows;
    tma_load(own(part), map, from.tokens(from.row_tile * kRowTile),
             rows_full(part == Smem::q ? 0 : 1));
  }
  /// All but q. `others`: bytes that come with them.
  __device__ void begin_first_rows(const BlockCoord& from, int others = 0) const {
    Mbarrier* const barrier = rows_full(0);
    const int first = from.row_tile * kRowTile;
    *place() = {first, from.head};
    mbarrier_expect_tx(barrier, Smem::kFirstBytes + Smem::kLseDeltaBytes + others);
    load_lengths(own_lengths(), from, first, barrier);
    tma_load(own(Smem::x), params.x, from.vectors(first), barrier);
    tma_load(own(Smem::y), params.y, from.vectors(first), barrier);
  }
  __device__ static void say_there_are_no_more_rows() {
    *place() = {-1, 0};
    mbarrier_arrive(rows_full(0));
  }
  /// All but k and v.
  __device__ void begin_rest_of_rows(const BlockCoord& from) const {
    Mbarrier* const barrier = rows_full(1);
    const int first = from.row_tile * kRowTile;
    mbarrier_expect_tx(barrier, Smem::kRestBytes + Smem::kLseDeltaBytes);
    tma_load(own_lse_delta(), params.lse_delta, from.scalars(first, 2), barrier);
    tma_load(own(Smem::dout), params.dout, from.tokens(first), barrier);
  }
  /// To begin with what was there before the previous launch, then what needs its lse and delta;
  /// all in the order of its use, since every block of the device begins at once.
  __device__ void load_old() const {
    begin_first_rows(block, 2 * Smem::kLseDeltaBytes);
    for (int tile = 0; tile < 2; ++tile)
      load_lengths(first_lengths(tile), block, min(tile, tiles - 1) * kPairColumns, rows_full(0));
    load_first(0);
    load_own(Smem::q, block);
    load_first(1);
  }
  __device__ void load_new() const {
    begin_rest_of_rows(block);
    load_rest(0);
    load_own(Smem::k, block);
    load_own(Smem::v, block);
    load_rest(1);
    for (int tile = 2; tile < Smem::kFirstStages; ++tile) {
      load_first(tile);
      if (tile < Smem::kRestStages) load_rest(tile);
    }
  }
  __device__ void wait_first_rows() const { mbarrier_wait(rows_full(0), phase); }
  __device__ void wait_rest_of_rows() const { mbarrier_wait(rows_full(1), phase); }
  __device__ static void wait_first(const Place& tile) {
    mbarrier_wait(first_full(tile.first.stage()), tile.first.phase());
  }
  __device__ static void wait_rest(const Place& tile) {
    mbarrier_wait(rest_full(tile.rest.stage()), tile.rest.phase());
  }
  /// Whether there is nothing to wait for.
  __device__ static bool has_first(const Place& tile) {
    return mbarrier_test_wait(first_full(tile.first.stage()), tile.first.phase());
  }
  __device__ static bool has_rest(const Place& tile) {
    return mbarrier_test_wait(rest_full(tile.rest.stage()), tile.rest.phase());
  }

  // ------------------------------------------------------------------------------ hand over

  // A barrier tells only neighbouring turns apart. A score warpgroup's last wait here was for the
  // tile three before, so tiles of either parity have a barrier of their own.

  /// Until nothing of the tile before is needed any more. A barrier's turn before its first counts
  /// as over.
  __device__ static void wait_turn(const Place& tile) {
    mbarrier_wait(items_empty((tile.count + 1) % 2), (tile.count + 1) / 2 - 1);
  }
  __device__ void put(const Place& tile, PairItem item, const Fragments& fragments) const {
    std::uint32_t further = Smem::place(item);
    if (!Smem::kHasAllSlots && item == PairItem::omega_x) further += tile.offset(Smem::v);
#pragma unroll
    for (int k = 0; k < kPairN8 / 2; ++k)
      store_fragment<T>((lane_chunk ^ 32 * k) + further, fragments[k]);
  }
  /// What has been put since the last time.
  __device__ static void hand_over(int part, bool any = true) {
    fence_proxy_async();
    __syncwarp();
    if (elect_one() && any) mbarrier_arrive(items_full(part));
  }
  __device__ static void wait_items(const Place& tile, int part) {
    mbarrier_wait(items_full(part), tile.count);
  }
  __device__ std::uint64_t item_matrix(const Place& tile, PairItem item) const {
    const std::uint64_t in_first_stage = matrices + Smem::place(item) / 16;
    if (Smem::kHasAllSlots || item != PairItem::omega_x) return in_first_stage;
    return in_first_stage + tile.offset(Smem::v) / 16;
  }
  /// A half of the block's rows is needed no more, if this is the last tile: its score warpgroup is
  /// the last to read them.
  __device__ static void release_rows(int half, bool is_last) {
    if constexpr (Walks) {
      __syncwarp();
      if (elect_one() && is_last) mbarrier_arrive(rows_empty(half));
    }
  }
  __device__ void wait_rows_read(int half) const {
    mbarrier_wait(rows_empty(half), phase);
    if (half == 0) mbarrier_wait(place_empty(), phase);
  }
  /// The queries' gradients are needed no more.
  __device__ static void release_first() {
    __syncwarp();
    if (elect_one()) mbarrier_arrive(items_empty(2));
  }
  __device__ static void wait_first_released(const Place& tile) {
    mbarrier_wait(items_empty(2), tile.count);
  }

  /// The sums need a tile no more. All four warps learn when none of them does.
  __device__ static void release(const Place& tile) {
    __syncwarp();
    Mbarrier* const barrier = items_empty(tile.count % 2);
    if (elect_one()) mbarrier_arrive(barrier);
    mbarrier_wait(barrier, tile.count / 2);
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
