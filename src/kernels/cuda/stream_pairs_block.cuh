#pragma once

#include "kernels/cuda/stream_distance.cuh"

/// What the warpgroups of a block share in the backward pass of the distance form
/// (stream_pairs.cuh).
namespace sape2::kernels::cuda {

inline constexpr int kPairThreads = 3 * kThreads;
inline constexpr int kPairRegisters = 65536 / kPairThreads / 8 * 8;  // of a thread, to begin with
inline constexpr int kPairColumns = kStreamColumns, kPairPieces = kPairColumns / 8;

/// What goes from the warpgroups that make weights to the one that sums, in this order for each
/// tile: 64 rows of the block by 64 columns of the tile, one slot of shared memory each.
enum class PairItem { query_gradients, key_weights, key_gradients, omega_x, omega_y };
inline constexpr int kPairItems = 5;

/// Places in shared memory, in bytes from its beginning. A tile comes in two halves, each with a
/// ring of its own: what distances and the first scores need, and the rest. Short vectors have
/// short rows; the memory that they spare is another stage, and a slot for every item.
template <int Steps>
struct StreamPairsLayout {
  static constexpr int kFirstStages = Steps > 2 ? 3 : 4, kRestStages = 3;
  static constexpr int kSlots = Steps > 2 ? 3 : kPairItems;
  enum Part { x, y, k, q, v, dout };
  static constexpr int kVectorRow = Steps > 2 ? 128 : 64;
  static constexpr int kVectorBytes = kPairColumns * kVectorRow;
  static constexpr int kFirstBytes = 2 * kVectorBytes + kStreamTile;
  static constexpr int kRestBytes = 3 * kStreamTile;
  // Of a tile's columns both squared lengths; log2(Σ e^logit), then dout · out.
  static constexpr int kNoteBytes = 2 * kPairColumns * 4;
  static constexpr int kRows = 0;
  static constexpr int kFirst = kRows + kFirstBytes + kRestBytes;
  static constexpr int kRest = kFirst + kFirstStages * kFirstBytes;
  static constexpr int kItems = kRest + kRestStages * kRestBytes;
  // Eight rows of ones: a product with them sums a matrix's rows.
  static constexpr int kOnes = kItems + kSlots * kStreamTile;
  static constexpr int kLengths = kOnes + kSharedAlignment;
  static constexpr int kNotes = kLengths + kFirstStages * kNoteBytes;
  static constexpr int kScratch = kNotes + kRestStages * kNoteBytes;
  static constexpr int kArrived = kScratch + 64;  // of each first stage, then of the block's rows
  static constexpr int kFollowed = kArrived + (kFirstStages + 1) * 8;  // of each other stage
  static constexpr int kFilled = kFollowed + kRestStages * 8;
  static constexpr int kEmptied = kFilled + kSlots * 8;
  static constexpr int kHanded = kEmptied + kSlots * 8;  // a tile's items, by its parity
  static constexpr int kReleased = kHanded + 2 * 8;      // of each stage of the rest
  static constexpr int kBytes = kReleased + kRestStages * 8;

  /// Where a part of the block's rows begins.
  __host__ __device__ static constexpr int own(int part) {
    return kRows + (part <= k ? part * kVectorBytes : kFirstBytes + (part - q) * kStreamTile);
  }
  /// Where a tile's part begins.
  __host__ __device__ static constexpr int other(int tile, int part) {
    if (part <= k) return kFirst + tile % kFirstStages * kFirstBytes + part * kVectorBytes;
    return kRest + tile % kRestStages * kRestBytes + (part - q) * kStreamTile;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Aligned for swizzled tiles, so that all places are known to the compiler.
extern __shared__ __align__(kSharedAlignment) unsigned char pairs_memory[];

/// `Steps`: sixteens of entries in the longer of the two vectors.
template <class T, int Steps>
struct StreamPairs {
  using Layout = StreamPairsLayout<Steps>;
  using Fragments = FragmentA<T>[kPairPieces / 2];

  const StreamBackward& params;
  const AttentionParams& p;
  const Geometry& g;
  StreamBlock block;
  int tiles, first_row, row;  // row and row + 8 are this lane's
  int warp;                   // of the warpgroup
  std::uint32_t lane_piece;   // where it begins to write an item into the first slot
  std::uint64_t matrices;     // the matrix unit's name for all this memory
  std::uint64_t vectors;      // the same for vectors
  float factor;               // of the bias

  __device__ explicit StreamPairs(const StreamBackward& all)
      : params(all),
        p(all.base.forward),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        tiles((g.tokens + kPairColumns - 1) / kPairColumns),
        first_row(block.row_tile * kRowTile),
        row(first_row + threadIdx.x % kThreads / 32 * 16 + Lane().g),
        warp(__shfl_sync(0xffffffffu, threadIdx.x % kThreads / 32, 0)),
        lane_piece(shared_address(slot(0).piece(threadIdx.x % kThreads / 32 * 16 + threadIdx.x % 16,
                                                threadIdx.x % 32 / 16))),
        matrices(descriptor(shared_address(pairs_memory))),
        vectors(descriptor<Layout::kVectorRow>(shared_address(pairs_memory))),
        factor(per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F)) {}

  __device__ static unsigned char* own(int part) { return pairs_memory + Layout::own(part); }
  __device__ static unsigned char* other(int tile, int part) {
    return pairs_memory + Layout::other(tile, part);
  }
  __device__ std::uint64_t own_matrix(int part) const {
    return (part < Layout::k ? vectors : matrices) + Layout::own(part) / 16;
  }
  __device__ std::uint64_t other_matrix(int tile, int part) const {
    return (part < Layout::k ? vectors : matrices) + Layout::other(tile, part) / 16;
  }
  /// Two neighbouring entries of a vector of the block's, as they were swizzled.
  __device__ static float2 own_entries(int part, int row, int entry) {
    constexpr int kPieces = Layout::kVectorRow / 16;
    const int piece = (entry / 8 ^ row * kPieces / 8) % kPieces;
    return unpack<T>(*reinterpret_cast<const std::uint32_t*>(own(part) + row * Layout::kVectorRow +
                                                             piece * 16 + entry % 8 * 2));
  }
  __device__ std::uint64_t ones_matrix() const { return matrices + Layout::kOnes / 16; }
  __device__ static Tile<T> slot(int index) {
    return {pairs_memory + Layout::kItems + index * kStreamTile, kRowTile, 64};
  }
  /// Squared lengths of a tile's x, behind them of its y.
  __device__ static float* lengths(int tile) {
    return reinterpret_cast<float*>(pairs_memory + Layout::kLengths +
                                    tile % Layout::kFirstStages * Layout::kNoteBytes);
  }
  /// log2(Σ e^logit), behind them dout · out.
  __device__ static float* note(int tile) {
    return reinterpret_cast<float*>(pairs_memory + Layout::kNotes +
                                    tile % Layout::kRestStages * Layout::kNoteBytes);
  }
  __device__ static float* scratch() {
    return reinterpret_cast<float*>(pairs_memory + Layout::kScratch);
  }
  __device__ static CopyBarrier* arrived(int stage) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kArrived) + stage;
  }
  __device__ static CopyBarrier* followed(int stage) {
    return reinterpret_cast<CopyBarrier*>(pairs_memory + Layout::kFollowed) + stage;
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

  /// By all threads, before anything is published.
  __device__ static void fill_ones() {
    for (int i = threadIdx.x; i < kSharedAlignment / 4; i += kPairThreads)
      reinterpret_cast<std::uint32_t*>(pairs_memory + Layout::kOnes)[i] = pack<T>(1.0F, 1.0F);
  }

  // --------------------------------------------------------------- copies, started by one thread

  __device__ void prepare() const {
    prefetch_maps(params.q, params.k_rows, params.v_rows, params.dout, params.x, params.y,
                  params.norm_x, params.norm_y, params.notes);
    for (int i = 0; i <= Layout::kFirstStages; ++i) prepare_barrier(arrived(i));
    for (int i = 0; i < Layout::kRestStages; ++i) {
      prepare_barrier(followed(i));
      prepare_barrier(released(i), kWarps);
    }
    for (int i = 0; i < 2; ++i) prepare_barrier(handed(i), kWarps);
    for (int i = 0; i < Layout::kSlots; ++i) {
      prepare_barrier(filled(i), kWarps);
      prepare_barrier(emptied(i), kWarps);
    }
  }
  __device__ void load_rows() const {
    CopyBarrier* const barrier = arrived(Layout::kFirstStages);
    expect_bytes(barrier, Layout::kFirstBytes + Layout::kRestBytes);
    copy_box(own(Layout::x), params.x, block.vectors(first_row), barrier);
    copy_box(own(Layout::y), params.y, block.vectors(first_row), barrier);
    copy_box(own(Layout::q), params.q, block.tokens(first_row), barrier);
    copy_box(own(Layout::k), params.k_rows, block.tokens(first_row), barrier);
    copy_box(own(Layout::v), params.v_rows, block.tokens(first_row), barrier);
    copy_box(own(Layout::dout), params.dout, block.tokens(first_row), barrier);
  }
  /// What a tile's distances and first scores need.
  __device__ void load_first(int tile) const {
    if (tile >= tiles) return;
    const int first = tile * kPairColumns;
    CopyBarrier* const barrier = arrived(tile % Layout::kFirstStages);
    expect_bytes(barrier, Layout::kFirstBytes + Layout::kNoteBytes);
    copy_box(other(tile, Layout::x), params.x, block.vectors(first), barrier);
    copy_box(lengths(tile), params.norm_x, block.notes(first, 1), barrier);
    copy_box(other(tile, Layout::y), params.y, block.vectors(first), barrier);
    copy_box(lengths(tile) + kPairColumns, params.norm_y, block.notes(first, 1), barrier);
    copy_box(other(tile, Layout::k), params.k_rows, block.tokens(first), barrier);
  }
  __device__ void load_rest(int tile) const {
    if (tile >= tiles) return;
    const int first = tile * kPairColumns;
    CopyBarrier* const barrier = followed(tile % Layout::kRestStages);
    expect_bytes(barrier, Layout::kRestBytes + Layout::kNoteBytes);
    copy_box(other(tile, Layout::v), params.v_rows, block.tokens(first), barrier);
    copy_box(other(tile, Layout::q), params.q, block.tokens(first), barrier);
    copy_box(note(tile), params.notes, block.notes(first, 2), barrier);
    copy_box(other(tile, Layout::dout), params.dout, block.tokens(first), barrier);
  }
  /// To begin with what was there before the launch in front, then what needs its notes.
  __device__ void load_old() const {
    load_rows();
    for (int tile = 0; tile < Layout::kFirstStages; ++tile) load_first(tile);
  }
  __device__ void load_new() const {
    for (int tile = 0; tile < Layout::kRestStages; ++tile) load_rest(tile);
  }
  __device__ void await_rows() const { wait_for_boxes(arrived(Layout::kFirstStages), 0); }
  __device__ void await_first(int tile) const {
    wait_for_boxes(arrived(tile % Layout::kFirstStages), tile / Layout::kFirstStages);
  }
  __device__ void await_rest(int tile) const {
    wait_for_boxes(followed(tile % Layout::kRestStages), tile / Layout::kRestStages);
  }

  // ------------------------------------------------------------------------------ hand over

  /// A slot, and how often it was filled before.
  struct Place {
    int slot, turn;
  };
  __device__ static Place place(int tile, int item) {
    if constexpr (Layout::kSlots == kPairItems) return {item, tile};
    const int number = tile * kPairItems + item;
    return {number % Layout::kSlots, number / Layout::kSlots};
  }
  __device__ static Place place(int tile, PairItem item) {
    return place(tile, static_cast<int>(item));
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
    const Place to = place(tile, item);
    if (to.turn > 0) wait_for_boxes(emptied(to.slot), to.turn - 1);
    const std::uint32_t first = lane_piece + to.slot * kStreamTile;
#pragma unroll
    for (int k = 0; k < kPairPieces / 2; ++k) store_fragment<T>(first ^ 32 * k, fragments[k]);
  }
  /// What has been put since the last time.
  __device__ static void hand_over(int tile, PairItem first, PairItem last) {
    publish_to_matrix_unit();
    __syncwarp();
    if (!is_chosen()) return;
#pragma unroll
    for (int item = static_cast<int>(first); item <= static_cast<int>(last); ++item)
      arrive(filled(place(tile, item).slot));
  }
  __device__ std::uint64_t await_item(int tile, PairItem item) const {
    const Place from = place(tile, item);
    wait_for_boxes(filled(from.slot), from.turn);
    return matrices + Layout::kItems / 16 + from.slot * (kStreamTile / 16);
  }
  __device__ static void empty(int tile, PairItem item) {
    if (is_chosen()) arrive(emptied(place(tile, item).slot));
  }

  /// The sums need a tile no more: its stages take others. Warps stay whole, or the compiler
  /// would no longer know that what it counts is the same for all lanes, as the matrix unit needs.
  __device__ void release(int tile) const {
    __syncwarp();
    CopyBarrier* const barrier = released(tile % Layout::kRestStages);
    if (is_chosen()) arrive(barrier);
    if (warp != 0) return;
    wait_for_boxes(barrier, tile / Layout::kRestStages);
    if (!is_chosen()) return;
    load_rest(tile + Layout::kRestStages);
    load_first(tile + Layout::kFirstStages);
  }
};

#endif

}  // namespace sape2::kernels::cuda
