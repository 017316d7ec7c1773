#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sape2::ops {

/// The weights `[B, h, N, N]` of any attention, found from outside: attention to values that are
/// unit vectors is the row of weights itself. Values have d channels, so d columns are found at a
/// time. `attend` takes values like q, `[B, h, N, d]`.
template <typename Attend>
at::Tensor attention_weights(const at::Tensor& q, const Attend& attend) {
  const std::int64_t tokens = q.size(2), channels = q.size(3);
  std::vector<at::Tensor> columns;
  for (std::int64_t begin = 0; begin < tokens; begin += channels) {
    const std::int64_t count = std::min(channels, tokens - begin);
    at::Tensor values = at::zeros({tokens, channels}, q.options());
    values.narrow(0, begin, count).narrow(1, 0, count).fill_diagonal_(1);
    columns.push_back(attend(values.expand_as(q).contiguous()).narrow(3, 0, count));
  }
  return at::cat(columns, 3);
}

}  // namespace sape2::ops
