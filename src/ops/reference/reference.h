#pragma once

#include "ops/arguments.h"

/// The operators as plain formulas in LibTorch operations, differentiable by autograd: slow and
/// obvious, the oracle of every fused path. 16-bit inputs are computed in float32 and rounded once,
/// at the end.
namespace sape2::ops::reference {

/// Axis vectors (B, h, H·W, W) and (B, h, H·W, H); mode "qk": with a leading axis of 2.
std::pair<at::Tensor, at::Tensor> vectors(const VectorArguments& a);

/// The bias (B, h, N, N) that axis vectors make; 0 for prefix tokens.
at::Tensor bias(const at::Tensor& ux, const at::Tensor& uy, const Grid& grid, Form form);

AttentionResult attention(const BiasedArguments& a);
AttentionResult attention(const Sape2Arguments& a);
AttentionResult attention(const CopeArguments& a);

/// The largest of each row of logits, and the sum of e^(logit − largest): (…, N) → (…, 2).
at::Tensor softmax_rows(const at::Tensor& logits);

/// a·b over the last axis for all pairs, (…, n, d) × (…, m, d) → (…, n, m), each sum in one order
/// wherever its row stands, so that equal rows give bitwise equal results. A matrix product does
/// not promise that.
at::Tensor ordered_products(const at::Tensor& a, const at::Tensor& b);

/// Values `z` (…, M) read at fractional positions `p` (…, m); position 0 is column `origin`, and
/// all positions must lie within the columns.
at::Tensor interpolate(const at::Tensor& z, const at::Tensor& p, int64_t origin = 0);

/// A number or one per head, as (h, 1, …, 1) with `axes` trailing ones; a default where not given.
at::Tensor per_head(const at::Tensor& value, double standard, const at::Tensor& like, int64_t axes);

/// The tensor in the type sums are kept in.
at::Tensor widened(const at::Tensor& tensor);

}  // namespace sape2::ops::reference
