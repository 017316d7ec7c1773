#pragma once

#include "sape2/ops/ops.h"

/// The gates of SaPE² as tensors, and attention with gates that somebody gives: what asks whether a
/// model uses its gates. Stage 1 is the plain formula here; nothing of it is fused.
namespace sape2::ops {

/// All gates of a grid, each number from 0 to 1.
struct Gates {
  at::Tensor x;  ///< [B, h, rows, cols, cols]: at [y, i, j], how much (y, j) counts for (y, i)
  at::Tensor y;  ///< [B, h, cols, rows, rows]: at [x, i, j], how much (j, x) counts for (i, x)
};

/// The gates that sape2_attention() computes on its way; of the options, `mode` and `span` do not
/// matter.
Gates sape2_gates(const at::Tensor& q, const at::Tensor& k, const Grid& grid,
                  const VectorOptions& vectors = {});

/// sape2_attention() with these gates in place of those of q and k: the scale and the offset of
/// `vectors` are not used. Gates of one image serve all images.
at::Tensor sape2_attention_with_gates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& ex, const at::Tensor& ey, const Grid& grid,
                                      const Gates& gates, const VectorOptions& vectors = {},
                                      const std::string& form = "distance",
                                      const BiasOptions& bias = {});

}  // namespace sape2::ops
