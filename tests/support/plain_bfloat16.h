#pragma once

#include "sape2/ops/ops.h"

namespace sape2::testing {

/// SaPE² attention by the plain formula with every intermediate result rounded to bfloat16, as a
/// model written in ordinary operations would have it: the yardstick of bfloat16 kernels.
/// Differentiable.
at::Tensor plain_bfloat16_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& ex, const at::Tensor& ey,
                                    const ops::Grid& grid, const ops::VectorOptions& vectors,
                                    const std::string& form, const ops::BiasOptions& bias);

/// The same for CoPE.
at::Tensor plain_bfloat16_cope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& e, double scale);

}  // namespace sape2::testing
