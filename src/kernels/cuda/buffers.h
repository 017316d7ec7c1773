#pragma once

#include "kernels/cuda/common.h"

/// The scratch of one call, laid out in the caller's workspace.
namespace sape2::kernels::cuda {

/// Axis vectors as the attention kernels read them, and room for their gradients.
struct VectorScratch {
  int own_sets = 1;  // the direct form adds sets up beforehand
  // In the inputs' type; the distance form's float32, and before that the vectors themselves, not
  // yet shifted and rounded.
  void* gradients[2] = {};
  std::size_t begin = 0;  // what comes from here on is free once attention's passes are done
  void* vectors[2] = {};  // in the inputs' type
  float* norms[2] = {};   // distance form
  int widths[2] = {};

  VectorScratch(Arena& arena, const Geometry& g, DType dtype, Form form, int sets, bool backward);
  VectorBuffers view() const;
};

/// What every backward pass keeps between its launches.
struct BackwardScratch {
  float* delta;
  float* dgain;  // partial sums

  BackwardScratch(Arena& arena, const Geometry& g);
};

/// Partial sums of stage 1's backward pass.
struct StageOneScratch {
  float* dtables[2];
  float* dgate_scale[2];
  float* dgate_offset[2];

  StageOneScratch(Arena& arena, const StageOneParams& stage);
};

}  // namespace sape2::kernels::cuda
