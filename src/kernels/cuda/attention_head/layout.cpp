#include "kernels/cuda/attention_head/layout.h"

#include <algorithm>

namespace sape2::kernels::cuda::head {
namespace {

/// Blocks of a multiprocessor that shared memory suffices for.
int resident(const Layout& layout, const Device& device) {
  constexpr int kReserved = 1024;  // of a block's, by the system
  return (device.shared_memory + kReserved) / (layout.bytes + kReserved);
}

/// Blocks of a multiprocessor that registers suffice for, too.
int at_once(int head_size, BiasForm form, const Layout& layout, bool backward,
            const Device& device) {
  const int by_registers = most_warps(head_size, form, layout.grid, backward) * 32 /
                           threads_of(layout.grid, head_size, layout, device.sm90a);
  return std::min(resident(layout, device), by_registers);
}

/// Which grids' kernel a call takes.
GridKind compiled_grid(const axis_vectors::Params& stage, bool has_tables, BiasForm form) {
  const auto& g = stage.geometry;
  const int head_size = small_head_size(g.head_size);
  // Without a bias a compiled grid is worth its while where warpgroups have enough to do.
  if (form == BiasForm::none && head_size == 64 && g.rows > 8) return GridKind::up_to_16;
  if (!has_tables || stage.sets != 1 || stage.span != specialized_span(form)) return GridKind::any;
  if (form != BiasForm::direct && form != BiasForm::distance) return GridKind::any;
  const auto is_exact_grid = [&](GridKind grid) {
    const auto sizes = exact_sizes(grid, form, head_size);
    bool same = is_compiled(grid, form, head_size) && g.prefix == 0 && g.rows == sizes.rows &&
                g.cols == sizes.rows;
    // Fewer table rows than expected would change where the second table stands.
    for (int axis = 0; axis < 2; ++axis)
      same = same && round_up(stage.axes[axis].positions + 1, 16) ==
                         round_up(sizes.positions[axis] + 1, 16);
    return same;
  };
  for (const auto grid : {GridKind::seven, GridKind::eight, GridKind::fourteen})
    if (is_exact_grid(grid)) return grid;
  const int longest = std::max(g.rows, g.cols);
  if (longest <= 8) return GridKind::up_to_8;
  if (longest > 16 || g.cols <= 8 || !is_compiled(GridKind::up_to_16, form, head_size))
    return GridKind::any;
  // Rows of 12 slots are strange to the general kernel.
  return longest <= 12 && g.head_size == head_size ? GridKind::up_to_12 : GridKind::up_to_16;
}

}  // namespace

Layout make_layout(const axis_vectors::Params& stage, bool has_tables, BiasForm form, bool backward,
                   const Device& device) {
  const auto& g = stage.geometry;
  const int head_size = small_head_size(g.head_size);
  if (head_size == 0 || g.cols > 16 || g.tokens > kMostSlots) return {};
  const auto grid = compiled_grid(stage, has_tables, form);
  const bool saves = saves_stage1(grid, form, g.head_size) && g.aligned;
  Layout l{};
  if (is_exact(grid)) {
    l = exact_layout(grid, form, head_size, backward, saves);
  } else {
    const int width = grid != GridKind::any ? row_width(grid) : g.cols <= 8 ? 8 : 16;
    Sizes sizes{.row_width = width, .rows = g.rows, .head_size = head_size, .sets = stage.sets};
    const bool beside = grid != GridKind::any && g.cols < width && g.prefix <= g.rows;
    sizes.behind = beside ? 0 : g.prefix;
    if (has_tables)
      for (int axis = 0; axis < 2; ++axis) sizes.positions[axis] = stage.axes[axis].positions;
    l = make_layout(sizes, form, grid, backward, false, backward && saves, 0);
    if (backward && !saves) {
      const auto reloading = make_layout(sizes, form, grid, true, true, false, 0);
      if (l.bytes > device.shared_memory ||
          (grid == GridKind::up_to_12 && resident(reloading, device) > resident(l, device)))
        l = reloading;
    } else if (!backward && is_alone(grid, head_size)) {
      for (int ahead = 1; ahead <= 2; ++ahead) {
        const auto more = make_layout(sizes, form, grid, false, false, false, ahead);
        if (at_once(head_size, form, more, false, device) >=
            std::max(1, at_once(head_size, form, l, false, device)))
          l = more;
      }
    }
    l.beside = g.prefix - sizes.behind;
  }
  if (l.slots > kMostSlots || l.bytes > device.shared_memory) l.bytes = 0;
  return l;
}

Geometry without_grid(Geometry g) {
  g.cols = 16;
  g.rows = g.tokens / g.cols;
  g.prefix = g.tokens % g.cols;
  return g;
}

const char* why_not(const axis_vectors::Params& stage, bool has_tables, BiasForm form, DType dtype,
                    float scale, const Device& device) {
  const auto& g = stage.geometry;
  if (dtype == DType::float32) return "it takes 16-bit types";
  // Gradients of scores and of gates share one matrix, in units of `scale`.
  if (scale == 0.0F) return "scale is 0";
  if (g.batch_heads / g.heads > kMostImages) return "there are too many images";
  if (small_head_size(g.head_size) == 0) return "it takes heads of up to 64 channels";
  if (form != BiasForm::none && g.cols > 16) return "it takes grids of up to 16 columns";
  if (g.tokens > kMostSlots) return "it takes up to 256 tokens";
  // Sizes alone decide, as scratch memory is asked for before rows are known to be aligned.
  axis_vectors::Params either = stage;
  for (const bool aligned : {false, true})
    for (const bool backward : {false, true}) {
      either.geometry.aligned = aligned;
      if (make_layout(either, has_tables, form, backward, device).bytes == 0)
        return "a head does not fit into a block's shared memory";
    }
  return nullptr;
}

int threads_of(GridKind grid, int head_size, const Layout& layout, bool sm90a) {
  const bool by_warpgroups = is_alone(grid, head_size) && sm90a;
  return round_up(layout.warps, by_warpgroups ? 4 : 1) * 32;
}

int blocks_per_head(const Geometry& g, BiasForm form, const Layout& layout, bool backward,
                    const Device& device) {
  const int blocks = std::max(1, at_once(g.head_size, form, layout, backward, device));
  const std::int64_t images = g.batch_heads / g.heads;
  const std::int64_t blocks_per_head = std::max(1, blocks * device.multiprocessors / g.heads);
  return static_cast<int>(std::min(images, blocks_per_head));
}

}  // namespace sape2::kernels::cuda::head
