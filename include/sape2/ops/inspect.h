#pragma once

#include "sape2/ops/ops.h"

#include <cstdint>
#include <vector>

/// What attention is made of, seen from a few chosen patches: the intermediates that the operators
/// compute and do not store. Each function takes the arguments of the operator beside it and reads
/// its tables and vectors by the same code; nothing of size N × N is made, so that one row of a
/// large grid costs little. Not differentiable.
namespace sape2::ops {

/// What the chosen patches see along one axis; n is the grid's cols for x, its rows for y.
struct AxisRows {
  at::Tensor gates;      ///< [B, h, R, n]: the gates of each one's own row or column
  at::Tensor positions;  ///< [B, h, R, n]: the soft positions they add up to, clamped
  at::Tensor clamped;    ///< [B, h, R, n], bool: which of them lay beyond the end of the table
  at::Tensor bias;       ///< [B, h, R, rows·cols]: this axis's part of the bias
};

/// One attention as R chosen patches see it. What an attention does not have stays undefined.
struct AttentionRows {
  at::Tensor attention;      ///< [B, h, R, N]: weights of all tokens, a row sums to one
  at::Tensor bias;           ///< [B, h, R, rows·cols]: to every patch, before gain and scale
  at::Tensor logit_factor;   ///< [h]: gain and scale; the bias times this is added to the logits
  AxisRows x, y;             ///< its two parts, and what they come from
  at::Tensor gates;          ///< [B, h, R, N]: CoPE's, over the raster order of all tokens
  at::Tensor positions;      ///< [B, h, R, N]: … and their sums
  at::Tensor clamped;        ///< [B, h, R, N], bool: sums that lay beyond the end of the table
  bool is_distance = false;  ///< the bias is a distance: 0 or more, and 0 to the patch itself
};

/// Patches by number: y·cols + x.
using PatchList = std::vector<int64_t>;

/// Rows of attention().
AttentionRows attention_rows(const at::Tensor& q, const at::Tensor& k, const Grid& grid,
                             const PatchList& patches, double scale = 0);

/// Rows of sape2_attention().
AttentionRows sape2_attention_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& ex,
                                   const at::Tensor& ey, const Grid& grid, const PatchList& patches,
                                   const VectorOptions& vectors = {},
                                   const std::string& form = "distance",
                                   const BiasOptions& bias = {});

/// Rows of axial_attention().
AttentionRows axial_attention_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& zx,
                                   const at::Tensor& zy, const Grid& grid, const PatchList& patches,
                                   const BiasOptions& bias = {.bias_inside = false});

/// Rows of cope_attention().
AttentionRows cope_attention_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e,
                                  const Grid& grid, const PatchList& patches, double scale = 0);

}  // namespace sape2::ops
