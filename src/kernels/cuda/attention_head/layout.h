#pragma once

#include "sape2/kernels/dispatch.h"

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/host/host_device.h"
#include "kernels/cuda/host/params.h"

/// Small grids: one block holds a whole (image, head), and nothing between inputs and outputs
/// leaves the chip but saved stage 1. Here, in plain C++: for which sizes, and the layout of shared
/// memory.
namespace sape2::kernels::cuda::head {

/// Grids that kernels are compiled for, with one pair of tables and the form's own span
/// (specialized_span): up to 8, 12 or 16 rows and columns and any prefix tokens, or a square of
/// exactly 7, 8 or 14 without. Those of up to 16 serve calls without a bias too.
enum class GridKind : std::uint8_t { any, up_to_8, up_to_12, up_to_16, seven, eight, fourteen };

SAPE2_HOST_DEVICE constexpr bool is_exact(GridKind grid) {
  return grid == GridKind::seven || grid == GridKind::eight || grid == GridKind::fourteen;
}

/// Patches of the longest line; of every line where the grid is exact.
SAPE2_HOST_DEVICE constexpr int longest_line(GridKind grid) {
  constexpr int kPatches[] = {0, 8, 12, 16, 7, 8, 14};
  return kPatches[static_cast<int>(grid)];
}

SAPE2_HOST_DEVICE constexpr bool is_small(GridKind grid) {
  return grid != GridKind::any && longest_line(grid) <= 8;
}

/// Whether there is a kernel for this form and heads of this size too: the common ones, as
/// each takes seconds to compile.
SAPE2_HOST_DEVICE constexpr bool is_compiled(GridKind grid, BiasForm form, int head_size) {
  if (form == BiasForm::none) return grid == GridKind::up_to_16 && head_size == 64;
  if (form == BiasForm::distance_pair) return false;
  if (grid == GridKind::fourteen) return head_size == 64;
  return head_size >= (grid == GridKind::eight || grid == GridKind::up_to_8 ? 16 : 32);
}

/// Slots of a row of a compiled grid.
SAPE2_HOST_DEVICE constexpr int row_width(GridKind grid) {
  return grid == GridKind::up_to_12 ? 12 : longest_line(grid) <= 8 ? 8 : 16;
}

/// Weights and gradients have a square each where that costs no block its place, which saves
/// waiting.
SAPE2_HOST_DEVICE constexpr bool has_two_squares(GridKind grid, int head_size) {
  return is_small(grid) && is_exact(grid) && head_size == 64;
}

/// Whether a warp makes a column's scores for everybody.
SAPE2_HOST_DEVICE constexpr bool shares_scores(GridKind grid) {
  return grid != GridKind::any && longest_line(grid) > 8;
}

/// Whether a block of the largest such grid has its multiprocessor to itself, so that nobody works
/// while it waits.
SAPE2_HOST_DEVICE constexpr bool is_alone(GridKind grid, int head_size) {
  return head_size == 64 && (grid == GridKind::fourteen || grid == GridKind::up_to_16);
}

/// Whether forward leaves what stage 1 makes to backward. Rows that are not aligned take the
/// general kernels, which save the same values with the same rounding.
SAPE2_HOST_DEVICE constexpr bool saves_stage1(GridKind grid, BiasForm form, int head_size) {
  return form == BiasForm::direct && is_alone(grid, head_size);
}

/// The span that compiled grids have with a form.
SAPE2_HOST_DEVICE constexpr Span specialized_span(BiasForm form) {
  return form == BiasForm::direct ? Span::between : Span::suffix;
}

/// Tokens stand in slots: grid rows padded to 8 or 16, so that eight neighbouring slots share a
/// grid row, or to 12, so that four do; then the prefix tokens, or these one below the other behind
/// the last column of the first rows. A warp owns 16 slots, as queries and as keys.
struct Layout {
  GridKind grid;
  int row_width;   // slots of a grid row: 8, 12 or 16
  int grid_slots;  // of the whole grid, to the next 8
  int beside;      // prefix tokens that stand beside the grid; the others stand behind it
  int slots, warps;

  // Tables of a set lie below each other, x then y, each padded to 16 rows, by at least one.
  int table_rows, second_table;
  // Vectors of a set lie beside each other, x then y. In floats: of one patch's line scores,
  // positions or vectors (x padded to row_width), and of its table values.
  int line_pitch, value_pitch;
  // Bytes of a row of 16-bit numbers: (queries, keys); table values' gradients; rounded vectors,
  // 16 of x, then y padded to 16.
  int square_pitch, bins_pitch, centered_pitch;

  // Where things begin, in bytes.
  int q, k, v, dout;
  int k_step, v_step;  // forward: from there to the next image's; 0: no such place
  int square;          // forward: a warp's scratch; backward: also weights
  int logits;          // gradients of logits: the square again, or another one
  int vectors;         // distance form, backward: exact vectors, a warp's in its rows of a square
  int lines;     // direct form: vectors, then their gradients; distance form: their gradients;
                 // forward: vectors, a warp's every lines_step bytes
  int tables;    // 16 bits
  int bins;      // gradients of table values, 16 bits
  int centered;  // distance form: rounded vectors
  int norms;     // float32
  int deltas;    // dout · out, float32
  int tokens;    // token of each slot or −1, 16 bits; behind them room for a barrier
  int scratch;   // bytes of a warp's scratch
  int lines_step;
  int bytes;
  bool reload;  // no room for q and v at once: v replaces q, and is replaced by it again
  bool saves;   // backward reads saved stage 1: q and v change places from image to image

  /// Where the barrier begins.
  SAPE2_HOST_DEVICE constexpr int split_barrier() const { return tokens + slots * 2; }
  /// The grid row and column of a slot of the grid.
  SAPE2_HOST_DEVICE constexpr int row_of(int slot) const {
    return row_width == 12 ? slot / 12 : row_width == 16 ? slot / 16 : slot / 8;
  }
  SAPE2_HOST_DEVICE constexpr int column_of(int slot) const {
    return row_width == 12 ? slot % 12 : slot & (row_width - 1);
  }
};

inline constexpr int kMostSlots = 256;
inline constexpr int kMostWarps = kMostSlots / 16;
inline constexpr std::int64_t kMostImages = std::int64_t{1} << 30;

/// Numbers that backward itself keeps for each entry of a line, lane by lane in the caller's
/// workspace, besides a slope for each set: position and score.
inline constexpr int kScratchNumbers = 2;

/// Chunks of 16 bytes that forward saves of each line, one for two entries; see
/// attention_head/lines_saved.cuh.
SAPE2_HOST_DEVICE constexpr int saved_chunks(GridKind grid) {
  return longest_line(grid) / 2;
}

/// Entries of a line that backward keeps in scratch memory.
SAPE2_HOST_DEVICE constexpr int scratch_entries(GridKind grid, const Geometry& g) {
  return grid != GridKind::any ? longest_line(grid) : g.rows > g.cols ? g.rows : g.cols;
}

/// The compiled head size that holds `head_size` (dispatch_small_head); 0: none.
constexpr int small_head_size(int head_size) {
  return head_size <= 16 ? 16 : head_size <= 32 ? 32 : head_size <= 64 ? 64 : 0;
}

/// Warps of a multiprocessor that registers suffice for. Small heads get fewer registers each, as
/// 24 warps hide each other's waits better than 16; larger ones too in small grids, where the
/// compiler finds fewer to need, unless distances or backward add to them. Where sizes are not
/// exact a few more are needed, and two blocks of a grid of 12 × 12 have 18 warps.
constexpr int most_warps(int head_size, BiasForm form, GridKind grid, bool backward) {
  const bool distance = form == BiasForm::distance || form == BiasForm::distance_pair;
  int largest = distance || shares_scores(grid) ? 0 : 16;
  if (is_small(grid)) largest = (distance ? 16 : 32) * (backward ? 1 : 2);
  if (grid == GridKind::up_to_12 && head_size <= 32) return 18;
  return head_size > largest ? kMostWarps : grid == GridKind::up_to_8 ? 20 : 24;
}

/// What a layout follows from.
struct Sizes {
  int row_width, rows;
  int behind;        // prefix tokens
  int head_size;     // compiled
  int positions[2];  // reachable table rows by axis; 0: no tables
  int sets;
};

/// Those of an exact grid.
SAPE2_HOST_DEVICE constexpr Sizes exact_sizes(GridKind grid, BiasForm form, int head_size) {
  const int side = longest_line(grid);
  const int positions = form == BiasForm::direct ? 2 * side - 1 : side + 1;
  return {side <= 8 ? 8 : 16, side, 0, head_size, {positions, positions}, 1};
}

/// Bytes that hold a patch's gradients of vectors, in float32, of any compiled grid.
inline constexpr int kLinesRow = 144;

/// Hands out shared memory.
struct Places {
  int used = 0;
  SAPE2_HOST_DEVICE constexpr int take(int bytes) {
    const int begin = used;
    used += round_up(bytes, 128);
    return begin;
  }
};

/// Known to the compiler where the sizes are. `reload`, `saves`: backward, see Layout. `ahead`:
/// forward, how many of k and v have a place for the next image's, too.
SAPE2_HOST_DEVICE constexpr Layout make_layout(const Sizes& s, BiasForm form, GridKind grid,
                                               bool backward, bool reload, bool saves, int ahead) {
  const bool two_squares = has_two_squares(grid, s.head_size), shared_scores = shares_scores(grid);
  using Rows = TileLayout<2>;
  const bool distance = form == BiasForm::distance || form == BiasForm::distance_pair;
  Layout l{};
  l.grid = grid;
  l.reload = reload;
  l.saves = saves;
  l.row_width = s.row_width;
  l.grid_slots = round_up(s.rows * l.row_width, 8);
  l.slots = round_up(l.grid_slots + s.behind, 16);
  l.warps = l.slots / 16;
  if (s.positions[0] > 0) {
    l.second_table = round_up(s.positions[0] + 1, 16);
    l.table_rows = l.second_table + round_up(s.positions[1] + 1, 16);
    l.value_pitch = l.table_rows + 3;
    l.bins_pitch = l.table_rows * 2 + 16;
  }
  // Pitches that spread over the banks both what lanes of one row and of one column touch.
  if (form != BiasForm::none) l.line_pitch = (l.row_width + s.rows) | 1;
  if (l.line_pitch % 16 == 1) l.line_pitch += 2;
  if (!backward && l.line_pitch == 31) l.line_pitch += 4;  // backward has no room for it
  l.centered_pitch = (16 + round_up(s.rows, 16)) * 2 + 16;

  const int tokens = Rows::bytes(l.slots, s.head_size);
  const int lines = l.slots * l.line_pitch * 4;
  // A warp's gradients of vectors, and of table values after them, have one place.
  if (saves && l.bins_pitch < kLinesRow) l.bins_pitch = kLinesRow;
  const int bins = l.slots * l.bins_pitch, centered = l.slots * l.centered_pitch;
  const int sets_apart = distance ? s.sets : 1;
  const auto more = [](int a, int b) { return a > b ? a : b; };
  // Tiles and tables come first: of heads of 64 they begin at multiples of 1024, as warpgroups'
  // products need it.
  Places places;
  l.q = places.take(tokens);
  l.k = places.take(tokens);
  l.tables = places.take(s.sets * Rows::bytes(l.table_rows, s.head_size));
  // Once the weights' gradients are known nobody needs v any more and, where weights and gradients
  // share a square, dout neither.
  const int reused = backward ? more(tokens, distance ? sets_apart * lines : bins) : tokens;
  l.v = l.reload ? l.q : places.take(two_squares ? reused : tokens);
  // Forward, a warp has its rows of q in registers before it makes vectors, unless others need
  // them.
  const int line_bytes = sets_apart * l.line_pitch * 4, row_bytes = Rows::bytes(1, s.head_size);
  const bool lines_in_q = !backward && line_bytes <= row_bytes && !shared_scores;
  l.scratch = 16 * (4 * l.value_pitch + ((backward ? distance : !lines_in_q) ? line_bytes : 0));
  // A grid column's scores go to one place in every warp's lines, which begin in different banks.
  if (!backward && shared_scores) l.scratch += (128 + 32 - l.scratch % 128) % 128;
  if (backward) {
    l.dout = places.take(two_squares ? tokens : reused);
    // With saved stage 1 a warp's vectors lie at the end of its rows: of more than eight grid
    // rows no weights take their places before they have been used, fewer leave room for all.
    const int in_square = saves         ? l.slots * 2 + (l.warps <= 8 ? 32 : 0)
                          : two_squares ? 4 * l.value_pitch
                                        : l.scratch / 16;
    l.square_pitch = (round_up(more(l.slots * 2, in_square), 16) / 16 | 1) * 16;
    l.square = places.take(l.slots * l.square_pitch);
    l.logits = two_squares ? places.take(l.slots * l.square_pitch) : l.square;
    l.vectors = two_squares ? l.logits : l.square + 64 * l.value_pitch;
    l.deltas = places.take(l.slots * 4);
    if (distance) {
      l.lines = two_squares ? l.v : l.dout;
      l.centered = places.take(sets_apart * more(centered, bins));
      l.bins = l.centered;
    } else {
      l.bins = two_squares ? l.v : l.dout;
      l.lines = saves ? l.bins : places.take(lines);
    }
  } else {
    if (ahead > 0) l.k_step = places.take(tokens) - l.k;
    if (ahead > 1) l.v_step = places.take(tokens) - l.v;
    l.square = places.take(l.warps * l.scratch);
    l.lines = lines_in_q ? l.q : l.square + 64 * l.value_pitch;
    l.lines_step = lines_in_q ? 16 * row_bytes : l.scratch;
    if (distance) l.centered = places.take(sets_apart * centered);
  }
  if (distance) l.norms = places.take(sets_apart * 2 * l.slots * 4);
  l.tokens =
      places.take(l.slots * 2 + (saves || (!backward && is_alone(grid, s.head_size)) ? 8 : 0));
  l.bytes = places.used;
  return l;
}

/// Heads of fourteen rows fit into a block's 227 KB backward without q and v at once, or without
/// lines; forward with another k, and another v where the distance form's shorter tables leave
/// room.
SAPE2_HOST_DEVICE constexpr Layout exact_layout(GridKind grid, BiasForm form, int head_size,
                                                bool backward, bool saves) {
  const bool large = grid == GridKind::fourteen, distance = form == BiasForm::distance;
  const int ahead = !large || backward ? 0 : distance ? 2 : 1;
  return make_layout(exact_sizes(grid, form, head_size), form, grid, backward,
                     backward && large && !saves, backward && saves, ahead);
}

/// `stage`: without tables only `geometry` and `sets` count. `bytes` is 0 if a head does not fit.
Layout make_layout(const axis_vectors::Params& stage, bool has_tables, BiasForm form, bool backward,
                   const Device& device);

/// Without a bias tokens may stand anywhere: in rows of 16, what is left over in front.
Geometry without_grid(Geometry g);

/// Null if calls of these sizes run one block per head, forward and backward alike; else why not.
const char* why_not(const axis_vectors::Params& stage, bool has_tables, BiasForm form, DType dtype,
                    float scale, const Device& device);

/// Threads of a block of the kernel for `grid`: a warp for sixteen slots, or whole warpgroups with
/// wgmma.
int threads_of(GridKind grid, int head_size, const Layout& layout, bool sm90a);

/// Blocks for each of the heads, which share its images among them: as many as the device holds at
/// once.
int blocks_per_head(const Geometry& g, BiasForm form, const Layout& layout, bool backward,
                    const Device& device);

}  // namespace sape2::kernels::cuda::head
