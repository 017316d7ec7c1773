#pragma once

#include "ops/arguments.h"

/// Axis vectors that the forward pass keeps for the backward pass, as bytes in the kernels' own
/// layout: [B, h, kept].
namespace sape2::ops {

/// How many bytes a head are worth keeping for a backward pass: 0 where it makes its vectors
/// itself.
int64_t bytes_to_keep(const Sape2Arguments& a);

/// How many the CUDA kernels would rather keep than make again; cuda_backend.cpp, in builds that
/// have them.
int64_t bytes_cuda_keeps(const Sape2Arguments& a);

/// Room for a.kept bytes a head.
at::Tensor empty_kept(const Sape2Arguments& a);

}  // namespace sape2::ops
