#include "kernels/cuda/head_layout.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.cuh"

#include <algorithm>
#include <array>
#include <atomic>

namespace sape2::kernels::cuda {
namespace {

using Rows = Tile<Bf16>;  // any 16-bit type

int multiprocessors() {
  constexpr int kRemembered = 64;
  static std::array<std::atomic<int>, kRemembered> known{};  // 0: not asked yet
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  if (device < kRemembered && known[device] != 0) return known[device];
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "asking for the device's multiprocessors");
  if (device < kRemembered) known[device] = count;
  return count;
}

/// Hands out shared memory.
struct Places {
  int used = 0;
  int take(int bytes) {
    const int begin = used;
    used += round_up(bytes, 128);
    return begin;
  }
};

void place(HeadLayout& l, int head_size, bool distance, int sets, bool backward) {
  const int tokens = Rows::bytes(l.slots, head_size);
  const int lines = l.slots * l.line_pitch * 4;
  const int bins = l.slots * l.bins_pitch, near = l.slots * l.near_pitch;
  const int sets_apart = distance ? sets : 1;
  Places places;
  l.q = places.take(tokens);
  l.k = places.take(tokens);
  l.v = l.reload ? l.q : places.take(tokens);
  l.scratch = 16 * 4 * (l.value_pitch + (distance || !backward ? sets_apart * l.line_pitch : 0));
  if (backward) {
    // Once the weights' gradients are known nobody needs dout any more.
    l.dout = places.take(std::max(tokens, distance ? sets_apart * lines : bins));
    l.square_pitch = round_up(std::max(l.slots * 2, l.scratch / 16), 32) + 16;
    l.square = places.take(l.slots * l.square_pitch);
    l.deltas = places.take(l.slots * 4);
    if (distance) {
      l.lines = l.dout;
      l.near = places.take(sets_apart * std::max(near, bins));
      l.bins = l.near;
    } else {
      l.lines = places.take(lines);
      l.bins = l.dout;
    }
  } else {
    l.square = places.take(l.warps * l.scratch);
    if (distance) l.near = places.take(sets_apart * near);
  }
  if (distance) l.norms = places.take(sets_apart * 2 * l.slots * 4);
  l.tables = places.take(sets * Rows::bytes(l.table_rows, head_size));
  l.tokens = places.take(l.slots * 2);
  l.bytes = places.used;
}

}  // namespace

HeadLayout head_layout(const Geometry& g, BiasForm form, const AxisLines* axes, int sets,
                       bool backward) {
  HeadLayout l{};
  const int head_size = head_size_compiled(g.head_size);
  if (head_size == 0 || g.cols > 16 || g.tokens > kHeadMostSlots) return l;
  l.row_width = g.cols <= 8 ? 8 : 16;
  l.grid_slots = g.rows * l.row_width;
  l.slots = round_up(l.grid_slots + g.prefix, 16);
  l.warps = l.slots / 16;
  if (l.slots > kHeadMostSlots) return l;
  if (axes != nullptr) {
    l.second_table = round_up(axes[0].positions + 1, 16);
    l.table_rows = l.second_table + round_up(axes[1].positions + 1, 16);
    l.value_pitch = l.table_rows + 1;
    l.bins_pitch = l.table_rows * 2 + 16;
  }
  if (form != BiasForm::none) l.line_pitch = (l.row_width + g.rows) | 1;
  l.near_pitch = (16 + round_up(g.rows, 16)) * 2 + 16;
  const bool distance = form == BiasForm::distance || form == BiasForm::distance_pair;
  place(l, head_size, distance, sets, backward);
  if (backward && l.bytes > shared_memory_limit()) {
    l.reload = true;
    place(l, head_size, distance, sets, backward);
  }
  if (l.bytes > shared_memory_limit()) l.bytes = 0;
  return l;
}

bool fits_head(const Geometry& g, DType dtype, float scale, BiasForm form, const AxisLines* axes,
               int sets) {
  // Gradients of scores and of gates share one matrix, in units of `scale`.
  if (dtype == DType::float32 || scale == 0.0F || g.batch_heads / g.heads > kHeadMostImages)
    return false;
  return head_layout(g, form, axes, sets, false).bytes > 0 &&
         head_layout(g, form, axes, sets, true).bytes > 0;
}

int head_turns(const Geometry& g, BiasForm form, const HeadLayout& layout) {
  constexpr int kReserved = 1024;  // of a block's shared memory, by the system
  const int by_memory = (shared_memory_limit() + kReserved) / (layout.bytes + kReserved);
  const int by_registers = head_warps(g.head_size, form) / layout.warps;
  const int resident = std::max(1, std::min(by_memory, by_registers));
  const std::int64_t images = g.batch_heads / g.heads;
  const std::int64_t turns = std::max(1, resident * multiprocessors() / g.heads);
  return static_cast<int>(std::min(images, turns));
}

}  // namespace sape2::kernels::cuda
