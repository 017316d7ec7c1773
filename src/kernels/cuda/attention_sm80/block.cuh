#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/host/params.h"

/// Which rows a block of the sm_80 kernels has.
namespace sape2::kernels::cuda::sm80 {

/// 64 rows of one head; `row` and row + 8 are this lane's.
struct BlockRows {
  int image, head;
  std::int64_t batch_head;
  int first_row, row;

  __device__ BlockRows(const Geometry& g, const Lane& lane) {
    const unsigned row_tiles = g.padded_tokens / kRowTile, head_index = blockIdx.x / row_tiles;
    first_row = (blockIdx.x - head_index * row_tiles) * kRowTile;
    image = head_index / unsigned(g.heads);
    head = head_index - image * g.heads;
    batch_head = head_index;
    row = first_row + threadIdx.x / 32 * 16 + lane.g;
  }
};

}  // namespace sape2::kernels::cuda::sm80
