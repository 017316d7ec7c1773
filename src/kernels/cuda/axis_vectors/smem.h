#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/tile_layout.h"

/// Shared memory of the generic stage 1 kernels, in plain C++: the kernels lay it out by these
/// functions, and dispatch compares them with what the device has.
namespace sape2::kernels::cuda::axis_vectors {

/// What sizes follow from besides the lines.
struct SmemSizes {
  int element_bytes;
  int head_size;  // compiled
};

/// Of the table's reachable rows a patch at place `own` of its line reaches a window: so many, from
/// window_first on.
SAPE2_HOST_DEVICE inline int window_rows(const AxisLines& axis) {
  return axis.positions <= axis.length ? axis.positions : axis.length + (axis.origin == 0);
}
/// Row pitches of the float32 scratch, odd so that neighbouring rows fall into different banks.
SAPE2_HOST_DEVICE inline int line_pitch(const AxisLines& axis) {
  return axis.length | 1;
}
SAPE2_HOST_DEVICE inline int table_pitch(const AxisLines& axis) {
  return (window_rows(axis) + 1) | 1;
}

/// The float32 scratch of one warp: positions of its patches, then the table's values, which give
/// way to their gradients, and room for the gradients of the lines' second halves.
SAPE2_HOST_DEVICE inline int warp_scratch(const AxisLines& axis) {
  return 16 * (line_pitch(axis) + 2 * table_pitch(axis));
}

/// The reachable table rows: 16-bit types keep them, rounded; float32 reads them where they are.
template <int ElementBytes>
SAPE2_HOST_DEVICE constexpr int table_bytes(int head_size, const AxisLines& axis) {
  using Layout = TileLayout<ElementBytes>;
  return ElementBytes == 4 ? 0 : Layout::bytes(round_up(axis.positions, 16), head_size);
}

/// q and k of a group of lines; the table; the patches' table values; the group's tokens.
int forward_smem_bytes(const SmemSizes& sizes, const AxisLines& axis);
/// q and k; the table; the scores' gradients; the warps' scratch, shared by `turns` of them; the
/// tokens.
int backward_smem_bytes(const SmemSizes& sizes, const AxisLines& axis, int turns);

}  // namespace sape2::kernels::cuda::axis_vectors
