#pragma once

#include "sape2/kernels/dispatch.h"

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/params.h"

/// What entry points ask of a choice besides the families.
namespace sape2::kernels::cuda {

/// Whether sizes let stage 1's backward pass come before the dk/dv pass, which then adds to dk:
/// both write it by TMA. Scratch memory is laid out by this.
inline bool may_begin_dk(const Choice& choice, Form form) {
  return form == Form::direct && choice.stage1_in_clusters;
}

/// Stage 1 of a call, as far as sizes go.
axis_vectors::Params stage_of(const Call& call, const Geometry& g);

/// The head size that kernels in tiles are compiled for: the smallest that holds `head_size`.
constexpr int compiled_head_size(int element_bytes, int head_size) {
  return element_bytes == 2 && head_size <= 32 ? 32 : head_size <= 64 ? 64 : kLargestHead;
}

}  // namespace sape2::kernels::cuda
