#pragma once

#include "sape2/nn/encoding_definition.h"
#include "sape2/ops/ops.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

namespace sape2::nn {

/// The tables `ex`, `ey` (…, M, d) of the grid trained at, for another grid:
/// - `clamp`: as they are; longer positions read the last row
/// - `extend`: longer by the rows the larger grid needs, each end continued along the straight line
///   from the row of position 0
/// - `resample`: stretched along each axis, so that a position means the same part of the image
std::pair<at::Tensor, at::Tensor> resized_tables(const at::Tensor& ex, const at::Tensor& ey,
                                                 const std::string& span, const std::string& resize,
                                                 const EncodingShape& trained,
                                                 const ops::Grid& grid);

/// A table with so many rows that reads the same: rows that it lacks at its ends are the ones that
/// longer positions clamp to, and too many are those that no position reaches.
at::Tensor with_rows(const at::Tensor& table, bool between, int64_t rows);

}  // namespace sape2::nn
