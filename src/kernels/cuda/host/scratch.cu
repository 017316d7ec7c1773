#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/scratch.h"

namespace sape2::kernels::cuda {

VectorScratch::VectorScratch(Arena& workspace, Arena& saved, const Geometry& g, DType dtype,
                             Form form, int sets, bool backward)
    : own_sets(form == Form::direct ? 1 : sets) {
  const std::int64_t rows = own_sets * g.batch_heads * g.padded_tokens;
  const bool distance = form == Form::distance;
  for (int axis = 1; axis >= 0; --axis) {
    widths[axis] = round_up(axis ? g.rows : g.cols, 16);
    first_gradients = workspace.place();
    if (distance || backward)
      gradients[axis] =
          workspace.take_bytes(rows * widths[axis] * (distance ? 4 : element_bytes(dtype)));
  }
  begin = workspace.place();
  for (int axis = 0; axis < 2; ++axis) {
    vectors[axis] = saved.take_bytes(rows * widths[axis] * element_bytes(dtype));
    if (distance) norms[axis] = saved.take_floats(rows);
  }
}

VectorBuffers VectorScratch::view() const {
  return {.sets = own_sets,
          .x = vectors[0],
          .y = vectors[1],
          .norm_x = norms[0],
          .norm_y = norms[1],
          .width_x = widths[0],
          .width_y = widths[1]};
}

BackwardScratch::BackwardScratch(Arena& arena, const Geometry& g)
    : delta(arena.take_floats(2 * g.batch_heads * g.padded_tokens)),
      dgain(arena.take_floats(g.batch_heads * (g.padded_tokens / kRowTile))) {}

AxisVectorScratch::AxisVectorScratch(Arena& arena, const axis_vectors::Params& stage,
                                     std::size_t begin) {
  for (int axis = 1; axis >= 0; --axis) {
    const auto& lines = stage.axes[axis];
    const std::int64_t clusters = stage.geometry.batch_heads * lines.partial_sums();
    dtables[axis] =
        arena.take_floats(clusters * stage.sets * lines.positions * stage.geometry.head_size);
    arena.return_to(std::max(arena.place(), begin));
    dgate_scale[axis] = arena.take_floats(clusters);
    dgate_offset[axis] = arena.take_floats(clusters);
  }
}

}  // namespace sape2::kernels::cuda
