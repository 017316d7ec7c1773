#include "kernels/cuda/device_facts.h"
#include "kernels/cuda/head_layout.h"

#include <algorithm>

namespace sape2::kernels::cuda {
namespace {

/// Blocks of a multiprocessor that shared memory suffices for.
int resident(const HeadLayout& layout) {
  constexpr int kReserved = 1024;  // of a block's, by the system
  return (shared_memory_limit() + kReserved) / (layout.bytes + kReserved);
}

/// Blocks of a multiprocessor that registers suffice for, too.
int at_once(int head_size, BiasForm form, const HeadLayout& layout, bool backward) {
  const int by_registers = head_warps(head_size, form, layout.grid, backward) * 32 /
                           head_threads(layout.grid, head_size, layout);
  return std::min(resident(layout), by_registers);
}

/// Which grids' kernel a call takes.
HeadGrid compiled_grid(const StageOneParams& stage, bool has_tables, BiasForm form) {
  const auto& g = stage.geometry;
  const int head_size = head_size_compiled(g.head_size);
  // Without a bias a compiled grid is worth its while where warpgroups have enough to do.
  if (form == BiasForm::none && head_size == 64 && g.rows > 8) return HeadGrid::up_to_16;
  if (!has_tables || stage.sets != 1 || stage.span != usual_span(form)) return HeadGrid::any;
  if (form != BiasForm::direct && form != BiasForm::distance) return HeadGrid::any;
  const auto is_exact_grid = [&](HeadGrid grid) {
    const auto sizes = exact_sizes(grid, form, head_size);
    bool same = is_compiled(grid, form, head_size) && g.prefix == 0 && g.rows == sizes.rows &&
                g.cols == sizes.rows;
    // Fewer table rows than usual would change where the second table stands.
    for (int axis = 0; axis < 2; ++axis)
      same = same && round_up(stage.axes[axis].positions + 1, 16) ==
                         round_up(sizes.positions[axis] + 1, 16);
    return same;
  };
  for (const auto grid : {HeadGrid::seven, HeadGrid::eight, HeadGrid::fourteen})
    if (is_exact_grid(grid)) return grid;
  const int longest = std::max(g.rows, g.cols);
  if (longest <= 8) return HeadGrid::up_to_8;
  if (longest > 16 || g.cols <= 8 || !is_compiled(HeadGrid::up_to_16, form, head_size))
    return HeadGrid::any;
  // Rows of 12 slots are strange to the general kernel.
  return longest <= 12 && g.head_size == head_size ? HeadGrid::up_to_12 : HeadGrid::up_to_16;
}

}  // namespace

HeadLayout head_layout(const StageOneParams& stage, bool has_tables, BiasForm form, bool backward) {
  const auto& g = stage.geometry;
  const int head_size = head_size_compiled(g.head_size);
  if (head_size == 0 || g.cols > 16 || g.tokens > kHeadMostSlots) return {};
  const auto grid = compiled_grid(stage, has_tables, form);
  const bool keeps = keeps_lines(grid, form, g.head_size) && g.aligned;
  HeadLayout l{};
  if (is_exact(grid)) {
    l = exact_layout(grid, form, head_size, backward, keeps);
  } else {
    const int width = grid != HeadGrid::any ? row_width(grid) : g.cols <= 8 ? 8 : 16;
    HeadSizes sizes{.row_width = width, .rows = g.rows, .head_size = head_size, .sets = stage.sets};
    const bool beside = grid != HeadGrid::any && g.cols < width && g.prefix <= g.rows;
    sizes.behind = beside ? 0 : g.prefix;
    if (has_tables)
      for (int axis = 0; axis < 2; ++axis) sizes.positions[axis] = stage.axes[axis].positions;
    l = head_layout(sizes, form, grid, backward, false, backward && keeps, 0);
    if (backward && !keeps) {
      const auto reloading = head_layout(sizes, form, grid, true, true, false, 0);
      if (l.bytes > shared_memory_limit() ||
          (grid == HeadGrid::up_to_12 && resident(reloading) > resident(l)))
        l = reloading;
    } else if (!backward && is_alone(grid, head_size)) {
      for (int ahead = 1; ahead <= 2; ++ahead) {
        const auto more = head_layout(sizes, form, grid, false, false, false, ahead);
        if (at_once(head_size, form, more, false) >=
            std::max(1, at_once(head_size, form, l, false)))
          l = more;
      }
    }
    l.beside = g.prefix - sizes.behind;
  }
  if (l.slots > kHeadMostSlots || l.bytes > shared_memory_limit()) l.bytes = 0;
  return l;
}

bool fits_head(const StageOneParams& stage, bool has_tables, BiasForm form, DType dtype,
               float scale) {
  // Gradients of scores and of gates share one matrix, in units of `scale`.
  const auto& g = stage.geometry;
  if (dtype == DType::float32 || scale == 0.0F || g.batch_heads / g.heads > kHeadMostImages)
    return false;
  // Sizes alone decide, as scratch memory is asked for before rows are known to be aligned.
  StageOneParams either = stage;
  for (const bool aligned : {false, true})
    for (const bool backward : {false, true}) {
      either.geometry.aligned = aligned;
      if (head_layout(either, has_tables, form, backward).bytes == 0) return false;
    }
  return true;
}

int head_threads(HeadGrid grid, int head_size, const HeadLayout& layout) {
  const bool by_warpgroups = is_alone(grid, head_size) && is_hopper_code();
  return round_up(layout.warps, by_warpgroups ? 4 : 1) * 32;
}

int head_turns(const Geometry& g, BiasForm form, const HeadLayout& layout, bool backward) {
  const int blocks = std::max(1, at_once(g.head_size, form, layout, backward));
  const std::int64_t images = g.batch_heads / g.heads;
  const std::int64_t turns = std::max(1, blocks * multiprocessors() / g.heads);
  return static_cast<int>(std::min(images, turns));
}

}  // namespace sape2::kernels::cuda
