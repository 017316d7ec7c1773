#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/params.h"

/// The scratch of one call, laid out in the caller's workspace.
namespace sape2::kernels::cuda {

/// Axis vectors as the attention kernels read them, which may be kept from forward to backward in
/// memory of their own, and room for their gradients.
struct VectorScratch {
  int own_sets = 1;  // the direct form adds sets up beforehand
  // In the inputs' type; the distance form has room for float32, and before that the vectors
  // themselves, not yet shifted and rounded, or in specialized calls what they are shifted by.
  void* gradients[2] = {};
  std::size_t first_gradients = 0;  // where those of the first axis begin, behind the others
  std::size_t begin = 0;  // the workspace from here on is free once attention's passes are done
  void* vectors[2] = {};  // in the inputs' type
  float* norms[2] = {};   // distance form
  int widths[2] = {};

  VectorScratch(Arena& workspace, Arena& saved, const Geometry& g, DType dtype, Form form, int sets,
                bool backward);
  /// Nothing is kept.
  VectorScratch(Arena& workspace, const Geometry& g, DType dtype, Form form, int sets,
                bool backward)
      : VectorScratch(workspace, workspace, g, dtype, form, sets, backward) {}
  VectorBuffers view() const;
};

/// What every backward pass keeps between its launches.
struct BackwardScratch {
  float* delta;
  float* dgain;  // partial sums

  BackwardScratch(Arena& arena, const Geometry& g);
};

/// Partial sums of stage 1's backward pass.
struct AxisVectorScratch {
  float* dtables[2];
  float* dgate_scale[2];
  float* dgate_offset[2];

  /// The arena's memory is free from its place on once the first axis is done, from `begin` on at
  /// once.
  AxisVectorScratch(Arena& arena, const axis_vectors::Params& stage, std::size_t begin);
};

}  // namespace sape2::kernels::cuda
