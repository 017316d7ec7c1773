#include "kernels/cuda/axis_vectors/smem.h"

namespace sape2::kernels::cuda::axis_vectors {
namespace {

int table_bytes(const SmemSizes& s, const AxisLines& axis) {
  return s.element_bytes == 4 ? table_bytes<4>(s.head_size, axis)
                              : table_bytes<2>(s.head_size, axis);
}

}  // namespace

int forward_smem_bytes(const SmemSizes& s, const AxisLines& axis) {
  return kSharedAlignment + 2 * tile_bytes(s.element_bytes, axis.group_rows, s.head_size) +
         table_bytes(s, axis) + kRowTile * table_pitch(axis) * 4 + axis.group_rows * 4;
}

int backward_smem_bytes(const SmemSizes& s, const AxisLines& axis, int turns) {
  return kSharedAlignment + 2 * tile_bytes(s.element_bytes, axis.group_rows, s.head_size) +
         table_bytes(s, axis) + tile_bytes(s.element_bytes, axis.group_rows, axis.line_rows) +
         kWarps / turns * warp_scratch(axis) * 4 + axis.group_rows * 4;
}

}  // namespace sape2::kernels::cuda::axis_vectors
