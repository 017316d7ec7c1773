#pragma once

#include "kernels/cuda/stream_distance.cuh"

/// What the warpgroups of a block share in the backward pass of the distance form
/// (stream_pairs.cuh).
namespace sape2::kernels::cuda {

inline constexpr int kPairThreads = 3 * kThreads;
inline constexpr int kPairRegisters = 65536 / kPairThreads / 8 * 8;  // of a thread, to begin with
inline constexpr int kPairColumns = kStreamColumns, kPairPieces = kPairColumns / 8;

/// Places in shared memory, in bytes from its beginning.
struct StreamPairsLayout {
  static constexpr int kStages = 3, kSlots = 3;
  enum Part { q, k, v, dout, x, y, kParts };
  static constexpr int kTileBytes = kPairColumns * 128;
  static constexpr int kStageBytes = kParts * kTileBytes;
  // Of a tile's columns: pairs of log2(Σ e^logit) and dout · out, then both squared lengths.
  static constexpr int kNoteBytes = 4 * kPairColumns * 4;
  static constexpr int kRows = 0;
  static constexpr int kTiles = kRows + kParts * kStreamTile;
  static constexpr int kItems = kTiles + kStages * kStageBytes;
  static constexpr int kNotes = kItems + kSlots * kStreamTile;
  // Σω of the block's rows, by the warpgroup that made them and by axis.
  static constexpr int kOmegas = kNotes + kStages * kNoteBytes;
  static constexpr int kScratch = kOmegas + 2 * 2 * kRowTile * 4;
  static constexpr int kArrived = kScratch + 64;  // of each stage, then of the block's rows
  static constexpr int kFilled = kArrived + (kStages + 1) * 8;
  static constexpr int kEmptied = kFilled + kSlots * 8;
  static constexpr int kHanded = kEmptied + kSlots * 8;  // a tile's items, by its parity
  static constexpr int kReleased = kHanded + 2 * 8;      // of each stage
  static constexpr int kBytes = kReleased + kStages * 8;
};

/// What goes from the warpgroups that make weights to the one that sums, in this order for each
/// tile: 64 rows of the block by 64 columns of the tile, one slot of shared memory each.
enum class PairItem { query_gradients, key_weights, key_gradients, omega_x, omega_y };
inline constexpr int kPairItems = 5;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Aligned for swizzled tiles, so that all places are known to the compiler.
extern __shared__ __align__(kSharedAlignment) unsigned char pairs_memory[];

template <class T>
struct StreamPairs {
  using Layout = StreamPairsLayout;
  using Fragments = FragmentA<T>[kPairPieces / 2];

  const StreamBackward& params;
  const AttentionParams& p;
  const Geometry& g;
  StreamBlock block;
  int tiles, first_row, row, thread;  // row and row + 8 are this lane's
  std::uint32_t lane_piece;           // where it begins to write an item into the first slot
  std::uint64_t matrices;             // the matrix unit's name for all this memory
  float factor;                       // of the bias

  __device__ explicit StreamPairs(const StreamBackward& all)
      : params(all),
        p(all.base.forward),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        tiles((g.tokens + kPairColumns - 1) / kPairColumns),
        first_row(block.row_tile * kRowTile),
        row(first_row + threadIdx.x % kThreads / 32 * 16 + Lane().g),
        thread(threadIdx.x % kThreads),
        lane_piece(shared_address(slot(0).piece(thread / 32 * 16 + thread % 16, thread % 32 / 16))),
        matrices(descriptor(shared_address(pairs_memory))),
        factor(per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F)) {}

  __device__ static Tile<T> own(int part) {
    return {pairs_memory + Layout::kRows + part * kStreamTile, kRowTile, 64};
  }
  __device__ static Tile<T> other(int tile, int part) {
    return {pairs_memory + Layout::kTiles + tile % Layout::kStages * Layout::kStageBytes +
                part * Layout::kTileBytes,
            kPairColumns, 64};
  }
  __device__ std::uint64_t own_matrix(int part) const {
    return matrices + (Layout::kRows + part * kStreamTile) / 16;
  }
  __device__ std::uint64_t other_matrix(int tile, int part) const {
    return matrices + tile % Layout::kStages * (Layout::kStageBytes / 16) +
           (Layout::kTiles + part * Layout::kTileBytes) / 16;
  }
  __device__ static Tile<T> slot(int index) {
    return {pairs_memory + Layout::kItems + index * kStreamTile, kRowTile, 64};
  }
  __device__ static float* note(int tile) {
    return reinterpret_cast<float*>(pairs_memory + Layout::kNotes +
                                    tile % Layout::kStages * Layout::kNoteBytes);
  }
  __device__ static float* omega_sums(int maker, int axis) {
    return reinterpret_cast<float*>(pairs_memory + Layout::kOmegas) + (maker * 2 + axis) * kRowTile;
  }
  __device__ static float* scratch() {
    return reinterpret_cast<float*>(pairs_memory + Layout::kScratch);
  }
  __device__ static CopyBarrier* arrived(int stage) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kArrived) + stage;
  }
  __device__ static CopyBarrier* filled(int slot) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kFilled) + slot;
  }
  __device__ static CopyBarrier* emptied(int slot) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kEmptied) + slot;
  }

  __device__ static CopyBarrier* handed(int maker) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kHanded) + maker;
  }
  __device__ static CopyBarrier* released(int stage) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kReleased) + stage;
  }

  // --------------------------------------------------------------- copies, started by one thread

  __device__ void prepare() const {
    prefetch_maps(params.q, params.k_rows, params.v_rows, params.dout, params.x, params.y,
                  params.norm_x, params.norm_y, params.notes);
    for (int i = 0; i <= Layout::kStages; ++i) prepare_barrier(arrived(i));
    for (int i = 0; i < Layout::kStages; ++i) prepare_barrier(released(i), kWarps);
    for (int i = 0; i < 2; ++i) prepare_barrier(handed(i), kWarps);
    for (int i = 0; i < Layout::kSlots; ++i) {
      prepare_barrier(filled(i), kWarps);
      prepare_barrier(emptied(i), kWarps);
    }
  }
  __device__ void load_rows() const {
    CopyBarrier* const barrier = arrived(Layout::kStages);
    expect_bytes(barrier, Layout::kParts * kStreamTile);
    copy_box(own(Layout::x).data, params.x, block.vectors(first_row), barrier);
    copy_box(own(Layout::y).data, params.y, block.vectors(first_row), barrier);
    copy_box(own(Layout::q).data, params.q, block.tokens(first_row), barrier);
    copy_box(own(Layout::k).data, params.k_rows, block.tokens(first_row), barrier);
    copy_box(own(Layout::v).data, params.v_rows, block.tokens(first_row), barrier);
    copy_box(own(Layout::dout).data, params.dout, block.tokens(first_row), barrier);
  }
  /// What the launch before makes of a tile's tokens.
  __device__ void load_notes(int tile) const {
    if (tile < tiles)
      copy_box(note(tile), params.notes, block.notes(tile * kPairColumns, 2),
               arrived(tile % Layout::kStages));
  }
  /// Everything else.
  __device__ void load_tile(int tile) const {
    if (tile >= tiles) return;
    const int first = tile * kPairColumns;
    CopyBarrier* const barrier = arrived(tile % Layout::kStages);
    expect_bytes(barrier, Layout::kStageBytes + Layout::kNoteBytes);
    copy_box(other(tile, Layout::x).data, params.x, block.vectors(first), barrier);
    copy_box(other(tile, Layout::y).data, params.y, block.vectors(first), barrier);
    float* const to = note(tile);
    copy_box(to + 2 * kPairColumns, params.norm_x, block.notes(first, 1), barrier);
    copy_box(to + 3 * kPairColumns, params.norm_y, block.notes(first, 1), barrier);
    copy_box(other(tile, Layout::q).data, params.q, block.tokens(first), barrier);
    copy_box(other(tile, Layout::k).data, params.k_rows, block.tokens(first), barrier);
    copy_box(other(tile, Layout::v).data, params.v_rows, block.tokens(first), barrier);
    copy_box(other(tile, Layout::dout).data, params.dout, block.tokens(first), barrier);
  }
  __device__ void await_rows() const { wait_for_boxes(arrived(Layout::kStages), 0); }
  __device__ void await_tile(int tile) const {
    wait_for_boxes(arrived(tile % Layout::kStages), tile / Layout::kStages);
  }

  // ------------------------------------------------------------------------------ hand over

  __device__ static int number(int tile, PairItem item) {
    return tile * kPairItems + static_cast<int>(item);
  }
  /// Makers hand over in turns. A barrier tells only neighbouring turns apart; after this, those of
  /// the slots are no further.
  __device__ static void begin_turn(int tile) {
    if (tile > 0) wait_for_boxes(handed((tile - 1) % 2), (tile - 1) / 2);
  }
  __device__ static void end_turn(int tile) {
    if (is_chosen()) arrive(handed(tile % 2));
  }
  __device__ void put(int tile, PairItem item, const Fragments& fragments) const {
    const int n = number(tile, item), index = n % Layout::kSlots, turn = n / Layout::kSlots;
    if (turn > 0) wait_for_boxes(emptied(index), turn - 1);
    const std::uint32_t first = lane_piece + index * kStreamTile;
#pragma unroll
    for (int k = 0; k < kPairPieces / 2; ++k) store_fragment<T>(first ^ 32 * k, fragments[k]);
  }
  /// What has been put since the last time.
  __device__ static void hand_over(int tile, PairItem first, PairItem last) {
    publish_to_matrix_unit();
    __syncwarp();
    if (!is_chosen()) return;
    for (int n = number(tile, first); n <= number(tile, last); ++n)
      arrive(filled(n % Layout::kSlots));
  }
  __device__ std::uint64_t await_item(int n) const {
    const int index = n % Layout::kSlots;
    wait_for_boxes(filled(index), n / Layout::kSlots);
    return matrices + Layout::kItems / 16 + index * (kStreamTile / 16);
  }
  __device__ static void empty(int n) {
    if (is_chosen()) arrive(emptied(n % Layout::kSlots));
  }

  /// All warpgroups meet once, when Σω is there.
  __device__ static void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(kPairThreads) : "memory");
  }
  /// The sums need a tile no more: its stage takes another one.
  __device__ void release(int tile) const {
    __syncwarp();
    CopyBarrier* const barrier = released(tile % Layout::kStages);
    if (is_chosen()) arrive(barrier);
    if (thread != 0) return;
    wait_for_boxes(barrier, tile / Layout::kStages);
    load_tile(tile + Layout::kStages);
    load_notes(tile + Layout::kStages);
  }
};

#endif

}  // namespace sape2::kernels::cuda
