#include "kernels/cuda/buffers.h"
#include "kernels/cuda/tile.cuh"

namespace sape2::kernels::cuda {

VectorScratch::VectorScratch(Arena& arena, const Geometry& g, DType dtype, Form form, int sets,
                             bool backward)
    : own_sets(form == Form::direct ? 1 : sets) {
  const std::int64_t rows = own_sets * g.batch_heads * g.padded_tokens;
  const bool distance = form == Form::distance;
  for (int axis = 0; axis < 2; ++axis) {
    widths[axis] = round_up(axis ? g.rows : g.cols, 16);
    if (distance || backward)
      gradients[axis] =
          arena.take_bytes(rows * widths[axis] * (distance ? 4 : element_bytes(dtype)));
  }
  begin = arena.place();
  for (int axis = 0; axis < 2; ++axis) {
    vectors[axis] = arena.take_bytes(rows * widths[axis] * element_bytes(dtype));
    if (distance) norms[axis] = arena.take_floats(rows);
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

StageOneScratch::StageOneScratch(Arena& arena, const StageOneParams& stage) {
  for (int axis = 0; axis < 2; ++axis) {
    const auto& lines = stage.axes[axis];
    const std::int64_t blocks = stage.geometry.batch_heads * lines.chunks;
    dtables[axis] =
        arena.take_floats(blocks * stage.sets * lines.positions * stage.geometry.head_size);
    dgate_scale[axis] = arena.take_floats(blocks);
    dgate_offset[axis] = arena.take_floats(blocks);
  }
}

}  // namespace sape2::kernels::cuda
