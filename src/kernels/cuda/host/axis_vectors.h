#pragma once

#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/scratch.h"

namespace sape2::kernels::cuda {

/// Stage 1's backward pass with partial sums for the wanted gradients only.
axis_vectors::BackwardParams axis_vector_backward_params(
    const axis_vectors::Params& stage, const axis_vectors::VectorPlaces<const void*>& gradients,
    const View& dq, const View& dk, const EncodingGradients& wanted,
    const AxisVectorScratch& partial);

/// The jobs that make tables' and gates' gradients of the partial sums.
void sum_axis_vector_gradients(SumJobs& sums, const axis_vectors::Params& stage,
                               const Encoding& encoding, const EncodingGradients& wanted,
                               const AxisVectorScratch& partial);

}  // namespace sape2::kernels::cuda
