#pragma once

#include "kernels/cuda/params.h"

#include <cuda_runtime.h>

/// Stage 1 works along lines: the rows of the grid for the x axis, its columns for the y axis.
namespace sape2::kernels::cuda {

/// One axis. Only table rows that a position can reach are looked at: a line of n patches has
/// positions up to n.
struct AxisLines {
  int length, lines;
  int position_stride, line_stride;  // in tokens
  int table_first;                   // the table row of the lowest reachable position
  int positions;                     // reachable table rows
  int origin;                        // position 0 among them
  int group, groups;                 // lines one block takes, and how many blocks that makes
  int group_rows;                    // patches of a group, to the next 16

  /// The token of patch `row` of group `index`; −1 behind the end.
  __host__ __device__ int token(const Geometry& g, int index, int row) const {
    const int line = index * group + row / length;
    if (row >= group * length || line >= lines) return -1;
    return g.prefix + line * line_stride + row % length * position_stride;
  }
};

AxisLines axis_lines(const Geometry& g, Span span, std::int64_t table_rows, bool along_y);

struct StageOneParams {
  Geometry geometry;
  ConstView q, k;
  Span span;
  int sets;
  bool first_from_q;               // the first set's source; the second set's is k
  const float* tables[2][2];       // [set][axis]
  std::int64_t table_head_stride;  // 0: shared by the heads
  const float* gate_scale;         // (heads); null: 1/√head_size
  const float* gate_offset;        // (heads); null: 0
  AxisLines axes[2];
};

/// Where stage 1 puts the vectors: float32 (sets or 1, batch_heads, entries, padded_tokens), the
/// sets added up if `add_sets`, or, where `plain`, (sets, batch_heads, patches, entries) in the
/// inputs' type. The gradients come the same way.
template <class Pointer>
struct VectorPlaces {
  Pointer axes[2];
  bool plain;
  bool add_sets;
};

struct StageOneForward {
  StageOneParams stage;
  VectorPlaces<void*> vectors;
};

struct StageOneBackward {
  StageOneParams stage;
  VectorPlaces<const void*> gradients;
  View dq, dk;            // added to
  float* dtables[2];      // by axis: (blocks, sets, positions, head_size) partial sums, or null
  float* dgate_scale[2];  // by axis: (blocks) partial sums, or null
  float* dgate_offset[2];
};

template <class T>
void stage_one_forward(const StageOneForward& p, cudaStream_t stream);
template <class T>
void stage_one_backward(const StageOneBackward& p, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
