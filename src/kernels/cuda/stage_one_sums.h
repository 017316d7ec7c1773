#pragma once

#include "kernels/cuda/buffers.h"
#include "kernels/cuda/reduce.h"

namespace sape2::kernels::cuda {

/// Stage 1's backward pass with partial sums for the wanted gradients only.
StageOneBackward stage_one_backward_params(const StageOneParams& stage,
                                           const VectorPlaces<const void*>& gradients,
                                           const View& dq, const View& dk,
                                           const EncodingGradients& wanted,
                                           const StageOneScratch& partial);

/// The jobs that make tables' and gates' gradients of the partial sums.
void sum_stage_one(SumJobs& sums, const StageOneParams& stage, const Encoding& encoding,
                   const EncodingGradients& wanted, const StageOneScratch& partial);

}  // namespace sape2::kernels::cuda
