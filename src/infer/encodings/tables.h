#pragma once

#include "sape2/infer/inspection.h"
#include "sape2/nn/encoding_definition.h"

#include <cstdint>
#include <vector>

/// Tables of positions for another grid than the one trained at: src/nn/encodings/tables.h without
/// LibTorch.
namespace sape2::infer {

/// A table of (groups, rows, width).
struct Table {
  std::int64_t groups = 1;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::vector<float> numbers;

  const float* row(std::int64_t group, std::int64_t index) const {
    return numbers.data() + (group * rows + index) * width;
  }
  float* row(std::int64_t group, std::int64_t index) {
    return numbers.data() + (group * rows + index) * width;
  }
};

Table empty_table(std::int64_t groups, std::int64_t rows, std::int64_t width);

/// Rows at the places `origin + n · from / to` for `count` numbers n, the first of them `first`,
/// linearly between rows; places outside are clamped to the first and last row.
Table stretched(const Table& table, std::int64_t origin, std::int64_t from, std::int64_t to,
                std::int64_t first, std::int64_t count);

/// A table of the offsets −T … T as one of −to … to.
Table resampled_offsets(const Table& table, std::int64_t to);

/// A vector per token, (tokens, width), of the grid trained at for the tokens of `grid`: those of
/// prefix tokens are kept, those of patches resampled bicubically as an image.
std::vector<float> resampled_tokens(const std::vector<float>& table,
                                    const nn::EncodingShape& trained, const Grid& grid);

}  // namespace sape2::infer
