#pragma once

#include "sape2/nn/encoding_definition.h"
#include "sape2/ops/ops.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

/// Learnable tables of positions, and how they serve another grid than the one trained at.
namespace sape2::nn {

/// The deviation all tables start with.
inline constexpr double kTableDeviation = 0.02;

/// Reads `table` along `axis` at fractional places `[n]`, linearly between rows; places outside are
/// clamped to the first and last row.
at::Tensor rows_at(const at::Tensor& table, int64_t axis, const at::Tensor& places);

/// The places `origin + n · from / to` for `count` numbers n, the first of them `first`; `[count]`
/// in float64 on the table's device, made by operators that torch.compile sees.
at::Tensor stretched_places(const at::Tensor& table, int64_t origin, int64_t from, int64_t to,
                            int64_t first, int64_t count);

/// A table of the offsets −T … T along `axis` as one of −to … to, stretched so that the ends and
/// the middle stay where they are; the table itself where the size is right.
at::Tensor resampled_offsets(const at::Tensor& table, int64_t axis, int64_t to);

/// A vector per token `[1, N, D]` of the grid trained at for the tokens of `grid`: the vectors of
/// prefix tokens are kept, those of patches resampled bicubically as an image.
at::Tensor resampled_tokens(const at::Tensor& table, const EncodingShape& trained,
                            const ops::Grid& grid);

/// `[n, n]`: the row `offset(i, m) = n − 1 + m − i` of a table of offsets −(n−1) … n−1.
at::Tensor offset_rows(int64_t n, const at::Tensor& like);

}  // namespace sape2::nn
