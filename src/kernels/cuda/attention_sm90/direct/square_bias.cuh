#pragma once

#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

/// The direct form's bias where tiles of keys are squares of the grid that stand along columns.
namespace sape2::kernels::cuda::sm90 {

/// Panels of whole grids: of x and y for every eight entries, then SquareBias.
struct SquarePanels {
  static constexpr int kBytes = kRowTile * 16;
  __host__ __device__ static int x_bytes(const KeyTiling& columns) {
    return columns.parts * kBytes;
  }
  __host__ __device__ static int vector_bytes(const KeyTiling& columns) {
    return x_bytes(columns) + columns.tiles_per_part * kBytes;
  }
};

/// The bias of a tile that is a square of the grid: rows of what queries have for its eight columns
/// and eight rows, times a matrix that says which of both a key takes, with the ratio where it
/// does.
template <class T>
struct SquareBias {
  static constexpr int kBytes = 2 * SquarePanels::kBytes;
  std::uint32_t x, matrix;  // where they lie
  int x_bytes;

  __device__ SquareBias(const unsigned char* panels, const KeyTiling& columns)
      : x(shared_address(panels)),
        matrix(x + SquarePanels::vector_bytes(columns)),
        x_bytes(SquarePanels::x_bytes(columns)) {}
  /// Before wgmma is told of it, and a barrier: each thread a row of one panel.
  __device__ static void write_matrix(unsigned char* shared, float ratio) {
    const int key = threadIdx.x % kRowTile, own = threadIdx.x < kRowTile ? key % 8 : key / 8;
    const auto pair = [&](int first) {
      return pack<T>(own == first ? ratio : 0.0F, own == first + 1 ? ratio : 0.0F);
    };
    reinterpret_cast<uint4*>(shared)[threadIdx.x] = make_uint4(pair(0), pair(2), pair(4), pair(6));
  }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  /// Starts c = the bias.
  __device__ void start(float (&c)[8][4], const KeyTiling::Place& at) const {
    const std::uint32_t along_x = at.part * SquarePanels::kBytes;
    const std::uint32_t along_y = x_bytes + at.first_row / 8 * SquarePanels::kBytes;
    wgmma_ss<T>(c, smem_descriptor_unswizzled(x + along_x, along_y - along_x),
                smem_descriptor_unswizzled(matrix, SquarePanels::kBytes), 0);
  }
#endif
};

}  // namespace sape2::kernels::cuda::sm90
