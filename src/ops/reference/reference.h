#pragma once

#include "sape2/ops/gates.h"

#include "ops/arguments.h"

/// The operators as plain formulas in LibTorch operations, differentiable by autograd: slow and
/// obvious, the oracle of every fused path. 16-bit inputs are computed in float32 and rounded once,
/// at the end.
namespace sape2::ops::reference {

/// Axis vectors (B, h, H·W, W) and (B, h, H·W, H); mode "qk": with a leading axis of 2.
std::pair<at::Tensor, at::Tensor> vectors(const VectorArguments& a);

/// The same with given gates, of every image or of one for all.
std::pair<at::Tensor, at::Tensor> vectors(const VectorArguments& a, const Gates& gates);

/// The gates of all rows and columns of the grid.
Gates grid_gates(const VectorArguments& a);

/// Step 1 of stage 1 for tokens laid out in lines (…, n, d), each a row or a column of the grid:
/// the gates (…, n, n) of each line's patches.
at::Tensor gates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& gate_scale,
                 const at::Tensor& gate_offset);

/// Step 2: the positions (…, n, n) that gates add up to, clamped to tables of `table_rows` rows.
at::Tensor positions(const at::Tensor& gates, const std::string& span, int64_t table_rows);

/// Tokens (B, h, N, d) as the rows (B, h, H, W, d) and the columns (B, h, W, H, d) of the grid.
at::Tensor rows_of_grid(const at::Tensor& tokens, const Grid& grid);
at::Tensor columns_of_grid(const at::Tensor& tokens, const Grid& grid);

/// The bias of some patches to all, x's part and y's, each (B, h, R, H·W): `some` are their
/// numbers [R]; undefined: every patch.
std::pair<at::Tensor, at::Tensor> bias_parts(const at::Tensor& ux, const at::Tensor& uy,
                                             const Grid& grid, Form form,
                                             const at::Tensor& some = {});

/// The bias (B, h, N, N) that axis vectors make; 0 for prefix tokens.
at::Tensor bias(const at::Tensor& ux, const at::Tensor& uy, const Grid& grid, Form form);

/// The logits (B, h, R, N) of queries `q` (B, h, R, d); `bias` (B, h, R, N), or undefined: none.
at::Tensor logits(const at::Tensor& q, const at::Tensor& k, const at::Tensor& bias, double scale,
                  const at::Tensor& gain, bool bias_inside);

/// CoPE for queries `q` (B, h, R, d), all (B, h, R, N).
struct CopeSteps {
  at::Tensor gates, positions;
  at::Tensor bias;  ///< what is added to scale · q·k
  at::Tensor logits;
};
CopeSteps cope_steps(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e, double scale);

AttentionResult attention(const BiasedArguments& a);
AttentionResult attention(const Sape2Arguments& a);
AttentionResult attention(const CopeArguments& a);

/// The largest of each row of logits, and the sum of e^(logit − largest): (…, N) → (…, 2).
at::Tensor softmax_rows(const at::Tensor& logits);

/// a·b over the last axis for all pairs, (…, n, d) × (…, m, d) → (…, n, m), each sum in one order
/// wherever its row stands, so that equal rows give bitwise equal results. A matrix product does
/// not promise that.
at::Tensor ordered_products(const at::Tensor& a, const at::Tensor& b);

/// 1 / (1 + e^−x), computed the same way at every place in the tensor, for the same reason:
/// LibTorch's own computes the last few numbers of a CPU tensor differently.
at::Tensor scalar_sigmoid(const at::Tensor& x);

/// Values `z` (…, M) read at fractional positions `p` (…, m); position 0 is column `origin`, and
/// all positions must lie within the columns.
at::Tensor interpolate(const at::Tensor& z, const at::Tensor& p, int64_t origin = 0);

/// `values` (…, M) at the columns `index` (…, m); the backward pass sums in one order.
at::Tensor gathered(const at::Tensor& values, const at::Tensor& index);

/// A number or one per head, as (h, 1, …, 1) with `axes` trailing ones; a default where not given.
at::Tensor per_head(const at::Tensor& value, double standard, const at::Tensor& like, int64_t axes);

/// The tensor in the type sums are kept in.
at::Tensor widened(const at::Tensor& tensor);

}  // namespace sape2::ops::reference
