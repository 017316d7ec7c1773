#pragma once

#include "ops/arguments.h"

#include <ATen/ATen.h>

#include <array>

/// q, k and v as the thirds of one tensor [B, N, 3·h·d], the way a projection makes them.
namespace sape2::ops {

/// Whether three tensors [B, h, N, d] are such thirds, q first.
bool are_packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// The thirds of a tensor.
std::array<at::Tensor, 3> thirds(const at::Tensor& packed, int64_t heads);

/// The arguments of the same attention of the thirds, which autograd knows nothing of.
Sape2Arguments with_thirds(const PackedArguments& a);

/// The tensor whose thirds these are; a new one if they are of none.
at::Tensor joined(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// The heads [B, h, N, d] of a tensor [B, N, h·d], and the other way round.
at::Tensor split_by_heads(const at::Tensor& tokens, int64_t heads);
at::Tensor side_by_side(const at::Tensor& heads);

/// A new tensor where q is; on the CPU past the dispatcher, whose way takes twice as long.
at::Tensor empty_for(const at::Tensor& q, c10::SymIntArrayRef sizes, at::ScalarType type);

/// A new tensor [B, h, N, d] for what an attention gives: a token's heads side by side where q has
/// them so, otherwise contiguous.
at::Tensor empty_output(const at::Tensor& q);

/// Three new tensors laid out as q, k and v are: packed where they are and new tensors may share
/// memory, otherwise contiguous.
std::array<at::Tensor, 3> empty_like_heads(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, bool may_share);

}  // namespace sape2::ops
