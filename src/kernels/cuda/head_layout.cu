#include "kernels/cuda/head_layout.h"
#include "kernels/cuda/launch.h"

#include <algorithm>

namespace sape2::kernels::cuda {
namespace {

/// Which compiled grid these sizes belong to.
HeadGrid usual_grid(const Geometry& g, BiasForm form, const AxisLines* axes, int sets) {
  if (axes == nullptr || sets != 1 || g.prefix != 0) return HeadGrid::any;
  if (form != BiasForm::direct && form != BiasForm::distance) return HeadGrid::any;
  if (g.rows != g.cols || (g.rows != 7 && g.rows != 8 && g.rows != 14)) return HeadGrid::any;
  const auto grid = static_cast<HeadGrid>(g.rows);
  if (grid == HeadGrid::fourteen && head_size_compiled(g.head_size) != 64) return HeadGrid::any;
  const auto sizes = usual_sizes(grid, form, head_size_compiled(g.head_size));
  // Fewer table rows than usual would change where the second table stands.
  for (int axis = 0; axis < 2; ++axis)
    if (round_up(axes[axis].positions + 1, 16) != round_up(sizes.positions[axis] + 1, 16))
      return HeadGrid::any;
  return grid;
}

}  // namespace

HeadLayout head_layout(const Geometry& g, BiasForm form, const AxisLines* axes, int sets,
                       bool backward) {
  const int head_size = head_size_compiled(g.head_size);
  if (head_size == 0 || g.cols > 16 || g.tokens > kHeadMostSlots) return {};
  const auto grid = usual_grid(g, form, axes, sets);
  HeadLayout l{};
  if (grid != HeadGrid::any) {
    l = usual_layout(grid, form, head_size, backward);
  } else {
    HeadSizes sizes{.row_width = g.cols <= 8 ? 8 : 16,
                    .rows = g.rows,
                    .prefix = g.prefix,
                    .head_size = head_size,
                    .sets = sets};
    if (axes != nullptr)
      for (int axis = 0; axis < 2; ++axis) sizes.positions[axis] = axes[axis].positions;
    l = head_layout(sizes, form, backward, false, false, false);
    if (backward && l.bytes > shared_memory_limit())
      l = head_layout(sizes, form, backward, true, false, false);
  }
  if (l.slots > kHeadMostSlots || l.bytes > shared_memory_limit()) l.bytes = 0;
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

int head_turns(const Geometry& g, BiasForm form, const HeadLayout& layout, bool backward) {
  constexpr int kReserved = 1024;  // of a block's shared memory, by the system
  const int by_memory = (shared_memory_limit() + kReserved) / (layout.bytes + kReserved);
  const int by_registers = head_warps(g.head_size, form, layout.grid, backward) / layout.warps;
  const int resident = std::max(1, std::min(by_memory, by_registers));
  const std::int64_t images = g.batch_heads / g.heads;
  const std::int64_t turns = std::max(1, resident * multiprocessors() / g.heads);
  return static_cast<int>(std::min(images, turns));
}

}  // namespace sape2::kernels::cuda
