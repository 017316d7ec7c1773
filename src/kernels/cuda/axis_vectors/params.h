#pragma once

#include "kernels/cuda/host/host_device.h"
#include "kernels/cuda/host/params.h"

/// Stage 1 works along lines: the rows of the grid for the x axis, its columns for the y axis.
namespace sape2::kernels::cuda::axis_vectors {

/// One axis. Only table rows that a position can reach are looked at: a line of n patches has
/// positions up to n. In a block every line takes a multiple of 16 rows: the 16 rows of a warp then
/// belong to one line, and sums along lines are ordered alike in all of them.
struct AxisLines {
  int length, lines;
  int position_stride, line_stride;  // in tokens
  int table_first;                   // the table row of the lowest reachable position
  int positions;                     // reachable table rows
  int origin;                        // position 0 among them
  int line_rows;                     // length to the next 16
  int group, groups;                 // lines a block works on at once, and how many times that is
  int group_rows;                    // group · line_rows
  int chunk, chunks;                 // groups a block takes, and how many blocks a head gets
  int cluster;                       // blocks that add their sums up before they are stored

  /// How many of each partial sum a head has.
  SAPE2_HOST_DEVICE int partial_sums() const { return chunks / cluster; }
  /// The token of row `row` of group `index`; −1 where there is none.
  SAPE2_HOST_DEVICE int token(const Geometry& g, int index, int row) const {
    const int in_group = row / line_rows, place = row - in_group * line_rows;
    const int line = index * group + in_group;
    if (place >= length || line >= lines) return -1;
    return g.prefix + line * line_stride + place * position_stride;
  }
};

AxisLines axis_lines(const Geometry& g, Span span, std::int64_t table_rows, bool along_y);

/// Divides the lines among clusters of two blocks, where a head gets two. Clusters of four were
/// slower; likely not all blocks find room at once then.
void form_clusters(AxisLines& axis, const Geometry& g);
/// Divides them among as many blocks as there were clusters, for kernels that know none.
void dissolve_clusters(AxisLines& axis);

struct Params {
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

/// How the vectors, or their gradients, lie in memory: (sets, batch_heads, tokens, pitch). `plain`:
/// tokens are the patches alone and the pitch is the line's length, in the inputs' type; else
/// tokens are padded, the pitch is `widths`, and the type float32 where `wide`.
template <class Pointer>
struct VectorPlaces {
  Pointer axes[2];
  int widths[2];
  bool plain;
  bool fp32;
  bool add_sets;  // there is one set, the sum of all (their gradients are then the same)

  SAPE2_HOST_DEVICE int pitch(const AxisLines& axis, int index) const {
    return plain ? axis.length : widths[index];
  }
  /// The element a token's vector begins at.
  SAPE2_HOST_DEVICE std::int64_t place(const Geometry& g, const AxisLines& axis, int index, int set,
                                       std::int64_t batch_head, int token) const {
    const std::int64_t head = add_sets ? batch_head : set * g.batch_heads + batch_head;
    return (head * (plain ? g.tokens - g.prefix : g.padded_tokens) + token -
            (plain ? g.prefix : 0)) *
           pitch(axis, index);
  }
};

struct ForwardParams {
  Params stage;
  VectorPlaces<void*> vectors;
};

struct BackwardParams {
  Params stage;
  VectorPlaces<const void*> gradients;
  View dq, dk;               // added to
  bool gradients_are_ready;  // the launch before was still to add to dq or dk, but not to those
  bool begins_dk;         // the first axis writes what it would add to dk; specialized calls alone
  float* dtables[2];      // by axis: (clusters, sets, positions, head_size) partial sums, or null
  float* dgate_scale[2];  // by axis: (clusters) partial sums, or null
  float* dgate_offset[2];
};

}  // namespace sape2::kernels::cuda::axis_vectors
