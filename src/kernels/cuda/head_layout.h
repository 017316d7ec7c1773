#pragma once

#include "kernels/cuda/lines.h"
#include "kernels/cuda/params.h"

/// Small grids: a block of threads holds a whole head, and nothing between inputs and outputs
/// leaves the chip. Here: for which sizes, and what lies where in the block's shared memory.
namespace sape2::kernels::cuda {

/// Tokens stand in slots: grid rows padded to 8 or 16, so that eight neighbouring slots share a
/// grid row, then the prefix tokens. A warp owns 16 slots, as queries and as keys.
struct HeadLayout {
  int row_width;   // slots of a grid row: 8 or 16
  int grid_slots;  // of the whole grid
  int slots, warps;

  // Tables of a set lie below each other, x then y, each padded to 16 rows, by at least one.
  int table_rows, second_table;
  // Vectors of a set lie beside each other, x then y. In floats: of one patch's line scores,
  // positions or vectors (x padded to row_width), and of its table values.
  int line_pitch, value_pitch;
  // Bytes of a row of 16-bit numbers: (queries, keys); table values' gradients; rounded vectors,
  // 16 of x, then y padded to 16.
  int square_pitch, bins_pitch, near_pitch;

  // Where things begin, in bytes.
  int q, k, v, dout;
  int square;   // forward: a warp's scratch; backward: also weights, then their gradients
  int lines;    // direct form: vectors, then their gradients; distance form: their gradients
  int tables;   // 16 bits
  int bins;     // gradients of table values, 16 bits
  int near;     // distance form: rounded vectors
  int norms;    // float32
  int deltas;   // dout · out, float32
  int tokens;   // token of each slot or −1, 16 bits
  int scratch;  // bytes of a warp's scratch
  int bytes;
  bool reload;  // no room for q and v at once: v replaces q, and is replaced by it again
};

inline constexpr int kHeadMostSlots = 256;
inline constexpr int kHeadMostWarps = kHeadMostSlots / 16;
inline constexpr std::int64_t kHeadMostImages = std::int64_t{1} << 30;

/// Numbers kept for each entry of a line, lane by lane in the caller's workspace, besides a slope
/// for each set: position and score.
inline constexpr int kHeadKept = 2;

/// The compiled head size that holds `head_size`; 0: none.
constexpr int head_size_compiled(int head_size) {
  return head_size <= 16 ? 16 : head_size <= 32 ? 32 : head_size <= 64 ? 64 : 0;
}

/// Warps of a multiprocessor that registers suffice for. Those of small heads get fewer registers
/// each, as 24 warps hide each other's waits better than 16; distances need the registers.
constexpr int head_warps(int head_size, BiasForm form) {
  const bool distance = form == BiasForm::distance || form == BiasForm::distance_pair;
  return head_size <= 16 && !distance ? 24 : kHeadMostWarps;
}

/// `axes`: null without tables. `bytes` is 0 where a head does not fit.
HeadLayout head_layout(const Geometry& g, BiasForm form, const AxisLines* axes, int sets,
                       bool backward);

/// Whether calls of these sizes run a head a block, forward and backward alike.
bool fits_head(const Geometry& g, DType dtype, float scale, BiasForm form, const AxisLines* axes,
               int sets);

/// Blocks for each of the heads, which share its images among them: as many as the device holds at
/// once.
int head_turns(const Geometry& g, BiasForm form, const HeadLayout& layout);

}  // namespace sape2::kernels::cuda
