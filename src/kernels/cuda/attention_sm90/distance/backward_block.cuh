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
  using Layout = DistanceBwdSmem<Steps>;
  using Place = PairTile<Steps>;
  using Fragments = PairFragments<T>;
  static_assert(!Walks || Layout::kHasAllSlots);  // gradients leave by way of them
  using Memory::arrived, Memory::emptied, Memory::filled, Memory::first_lengths, Memory::followed;
  using Memory::next_lengths, Memory::notes, Memory::other, Memory::own, Memory::own_lengths;
  using Memory::own_notes, Memory::place, Memory::place_read, Memory::rows_arrived;
  using Memory::rows_read;

  const BackwardParams& params;
  const AttentionParams& p;
  const Geometry& g;
  BlockCoord block;
  unsigned turn = 0;  // how many tiles of rows the block had before
  int tiles;
  int warp;                  // of the warpgroup
  std::uint32_t lane_piece;  // where it would begin to write an item at this memory's beginning
  std::uint64_t matrices;    // the matrix unit's name for all this memory
  std::uint64_t vectors;     // the same for vectors

  __device__ explicit DistanceBwdBlock(const BackwardParams& all)
      : params(all),
        p(all.base.forward),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        // The same number, from where the compiler does better with it.
        tiles(Walks ? params.step.all_row_tiles : (g.tokens + kPairColumns - 1) / kPairColumns),
        warp(known_to_all_lanes(threadIdx.x % kThreads / 32)),
        lane_piece(shared_address(Tile<T>{pairs_memory, kRowTile, 64}.piece(
            threadIdx.x % kThreads / 32 * 16 + threadIdx.x % 16, threadIdx.x % 32 / 16))),
        matrices(descriptor(shared_address(pairs_memory))),
        vectors(descriptor<Layout::kVectorRow>(shared_address(pairs_memory))) {}

  /// This lane's rows of the block's are this one and that + 8.
  __device__ static int own_row() { return threadIdx.x % kThreads / 32 * 16 + Lane().g; }
  /// Of the bias.
  __device__ float factor(int head) const {
    return per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);
  }
  __device__ std::uint64_t own_matrix(int part) const {
    return (part < Layout::k ? vectors : matrices) + Layout::own(part) / 16;
  }
  __device__ std::uint64_t other_matrix(const Place& tile, int part) const {
    return (part < Layout::k ? vectors : matrices) + tile.offset(part) / 16 +
           Layout::other(part) / 16;
  }
  /// Sixteen of a tile's vectors, number k, with ones behind their last entry: how far away what
  /// follows a row's bytes lies is part of the name.
  __device__ std::uint64_t vectors_and_ones(const Place& tile, int part, int k) const {
    // A step further on, the ones are a step nearer.
    constexpr std::int64_t kFurther = 1 - (1 << 16);
    const std::int64_t place = Layout::other(part) + 16 * k * Layout::kVectorRow;
    const std::uint64_t in_first_stage =
        vectors + (std::int64_t(Layout::kOnes / 16 - 1) << 16) + place / 16 * kFurther;
    return in_first_stage + std::int64_t(tile.offset(part) / 16) * kFurther;
  }
  /// Of the four lanes that share a row, which one this is: read off an address, where asking for
  /// the thread's number would take longer.
  __device__ int quad() const { return lane_piece / 128 % 4; }
  // --------------------------------------------------------------- copies, started by one thread

  __device__ void prepare() const {
    prefetch_maps(params.q, params.k_rows, params.v_rows, params.dout, params.x, params.y,
                  params.norm_x, params.norm_y, params.notes);
    for (int i = 0; i < Layout::kFirstStages; ++i) prepare_barrier(arrived(i));
    for (int i = 0; i < Layout::kRestStages; ++i) prepare_barrier(followed(i));
    for (int i = 0; i < 2; ++i) {
      prepare_barrier(rows_arrived(i));
      prepare_barrier(rows_read(i), kWarps);
      prepare_barrier(filled(i), kWarps);
    }
    for (int i = 0; i < 3; ++i) prepare_barrier(emptied(i), kWarps);
    prepare_barrier(place_read(), 2 * kThreads);
  }
  __device__ void load_lengths(float* to, const BlockCoord& from, int first,
                               CopyBarrier* barrier) const {
    copy_box(to, params.norm_x, from.notes(first, 1), barrier);
    copy_box(to + kPairColumns, params.norm_y, from.notes(first, 1), barrier);
  }

  // Of a tile, into the stages of `place`: for distances and first scores, then the rest. Nothing
  // counts as arrived before all bytes are expected, whoever starts the copies.

  __device__ static void expect_first(const Place& place) {
    expect_bytes(arrived(place.first.stage()), Layout::kFirstBytes);
  }
  __device__ static void expect_rest(const Place& place) {
    expect_bytes(followed(place.rest.stage()), Layout::kRestBytes + Layout::kNumberBytes);
  }
  __device__ void load(int part, const BlockCoord& from, int first, const Place& place) const {
    const CUtensorMap* const maps[] = {&params.x, &params.y,      &params.k_rows,
                                       &params.q, &params.v_rows, &params.dout};
    copy_box(other(place, part), *maps[part],
             part < Layout::k ? from.vectors(first) : from.tokens(first),
             part <= Layout::k ? arrived(place.first.stage()) : followed(place.rest.stage()));
  }
  __device__ void load_notes(const BlockCoord& from, int first, const Place& place) const {
    copy_box(notes(place), params.notes, from.notes(first, 2), followed(place.rest.stage()));
  }
  /// Of the tile two further on.
  __device__ void load_next_lengths(const BlockCoord& from, int first, const Place& place) const {
    load_lengths(next_lengths(place), from, first, followed(place.rest.stage()));
  }
  // Of the first rows, to begin with.

  __device__ void load_first(int tile) const {
    if (tile >= tiles) return;
    const Place place(tile);
    const int first = tile * kPairColumns;
    expect_first(place);
    load(Layout::x, block, first, place);
    load(Layout::y, block, first, place);
    load(Layout::k, block, first, place);
  }
  __device__ void load_rest(int tile) const {
    if (tile >= tiles) return;
    const Place place(tile);
    const int first = tile * kPairColumns;
    expect_rest(place);
    load(Layout::v, block, first, place);
    load(Layout::q, block, first, place);
    load_notes(block, first, place);
    load_next_lengths(block, min(tile + 2, tiles - 1) * kPairColumns, place);
    load(Layout::dout, block, first, place);
  }
  // A block's own rows, likewise in two halves.

  __device__ void load_own(int part, const BlockCoord& from) const {
    const CUtensorMap& map = part == Layout::q   ? params.q
                             : part == Layout::k ? params.k_rows
                                                 : params.v_rows;
    copy_box(own(part), map, from.tokens(from.row_tile * kRowTile),
             rows_arrived(part == Layout::q ? 0 : 1));
  }
  /// All but q. `others`: bytes that come with them.
  __device__ void begin_first_rows(const BlockCoord& from, int others = 0) const {
    CopyBarrier* const barrier = rows_arrived(0);
    const int first = from.row_tile * kRowTile;
    *place() = {first, from.head};
    expect_bytes(barrier, Layout::kFirstBytes + Layout::kNoteBytes + others);
    load_lengths(own_lengths(), from, first, barrier);
    copy_box(own(Layout::x), params.x, from.vectors(first), barrier);
    copy_box(own(Layout::y), params.y, from.vectors(first), barrier);
  }
  __device__ static void say_there_are_no_more_rows() {
    *place() = {-1, 0};
    arrive(rows_arrived(0));
  }
  /// All but k and v.
  __device__ void begin_rest_of_rows(const BlockCoord& from) const {
    CopyBarrier* const barrier = rows_arrived(1);
    const int first = from.row_tile * kRowTile;
    expect_bytes(barrier, Layout::kRestBytes + Layout::kNoteBytes);
    copy_box(own_notes(), params.notes, from.notes(first, 2), barrier);
    copy_box(own(Layout::dout), params.dout, from.tokens(first), barrier);
  }
  /// To begin with what was there before the launch in front, then what needs its notes; all in the
  /// order of its use, since every block of the device begins at once.
  __device__ void load_old() const {
    begin_first_rows(block, 2 * Layout::kNoteBytes);
    for (int tile = 0; tile < 2; ++tile)
      load_lengths(first_lengths(tile), block, min(tile, tiles - 1) * kPairColumns,
                   rows_arrived(0));
    load_first(0);
    load_own(Layout::q, block);
    load_first(1);
  }
  __device__ void load_new() const {
    begin_rest_of_rows(block);
    load_rest(0);
    load_own(Layout::k, block);
    load_own(Layout::v, block);
    load_rest(1);
    for (int tile = 2; tile < Layout::kFirstStages; ++tile) {
      load_first(tile);
      if (tile < Layout::kRestStages) load_rest(tile);
    }
  }
  __device__ void await_first_rows() const { wait_for_boxes(rows_arrived(0), turn); }
  __device__ void await_rest_of_rows() const { wait_for_boxes(rows_arrived(1), turn); }
  __device__ static void await_first(const Place& tile) {
    wait_for_boxes(arrived(tile.first.stage()), tile.first.turn());
  }
  __device__ static void await_rest(const Place& tile) {
    wait_for_boxes(followed(tile.rest.stage()), tile.rest.turn());
  }
  /// Whether there is nothing to wait for.
  __device__ static bool has_first(const Place& tile) {
    return is_over(arrived(tile.first.stage()), tile.first.turn());
  }
  __device__ static bool has_rest(const Place& tile) {
    return is_over(followed(tile.rest.stage()), tile.rest.turn());
  }

  // ------------------------------------------------------------------------------ hand over

  // A barrier tells only neighbouring turns apart. A maker's last wait here was for the tile three
  // before, so tiles of either parity have a barrier of their own.

  /// Until nothing of the tile before is needed any more. A barrier's turn before its first counts
  /// as over.
  __device__ static void await_turn(const Place& tile) {
    wait_for_boxes(emptied((tile.count + 1) % 2), (tile.count + 1) / 2 - 1);
  }
  __device__ void put(const Place& tile, PairItem item, const Fragments& fragments) const {
    std::uint32_t further = Layout::place(item);
    if (!Layout::kHasAllSlots && item == PairItem::omega_x) further += tile.offset(Layout::v);
#pragma unroll
    for (int k = 0; k < kPairPieces / 2; ++k)
      store_fragment<T>((lane_piece ^ 32 * k) + further, fragments[k]);
  }
  /// What has been put since the last time.
  __device__ static void hand_over(int part, bool any = true) {
    publish_to_matrix_unit();
    __syncwarp();
    if (is_chosen() && any) arrive(filled(part));
  }
  __device__ static void await_items(const Place& tile, int part) {
    wait_for_boxes(filled(part), tile.count);
  }
  __device__ std::uint64_t item_matrix(const Place& tile, PairItem item) const {
    const std::uint64_t in_first_stage = matrices + Layout::place(item) / 16;
    if (Layout::kHasAllSlots || item != PairItem::omega_x) return in_first_stage;
    return in_first_stage + tile.offset(Layout::v) / 16;
  }
  /// A half of the block's rows is needed no more, if this is the last tile: its maker is the last
  /// to read them.
  __device__ static void release_rows(int half, bool is_last) {
    if constexpr (Walks) {
      __syncwarp();
      if (is_chosen() && is_last) arrive(rows_read(half));
    }
  }
  __device__ void await_rows_read(int half) const {
    wait_for_boxes(rows_read(half), turn);
    if (half == 0) wait_for_boxes(place_read(), turn);
  }
  /// The queries' gradients are needed no more.
  __device__ static void release_first() {
    __syncwarp();
    if (is_chosen()) arrive(emptied(2));
  }
  __device__ static void await_first_released(const Place& tile) {
    wait_for_boxes(emptied(2), tile.count);
  }

  /// The sums need a tile no more. All four warps learn when none of them does.
  __device__ static void release(const Place& tile) {
    __syncwarp();
    CopyBarrier* const barrier = emptied(tile.count % 2);
    if (is_chosen()) arrive(barrier);
    wait_for_boxes(barrier, tile.count / 2);
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
