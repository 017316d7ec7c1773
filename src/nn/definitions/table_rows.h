#pragma once

#include "sape2/nn/encoding_definition.h"

#include <cstdint>
#include <string>

namespace sape2::nn {

/// The rows a pair of SaPE² tables needs so that nothing clamps on a grid.
int64_t exact_table_rows(const std::string& span, int64_t rows, int64_t cols);

/// The rows that a model's tables have: as the option M says, or the default for its grid.
int64_t sape2_table_rows(const EncodingSpec& spec, const EncodingShape& shape);
int64_t cope_table_rows(const EncodingSpec& spec, const EncodingShape& shape);

}  // namespace sape2::nn
