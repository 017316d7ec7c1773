#include "ops/checks/checks.h"
#include "ops/operators/public_ops.h"
#include "ops/sizes.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::ops::public_ops {
namespace {

/// `count` frequencies base^(−t/count).
Tensor frequencies(double base, int64_t count, const Tensor& like) {
  const auto t = at::arange(count, like.options().dtype(compute_type(like)));
  return at::exp(t * (-std::log(base) / double(count)));
}

/// Column and row of every patch in raster order, each (H·W, 1).
std::pair<Tensor, Tensor> coordinates(const Grid& grid, const Tensor& like) {
  const auto options = like.options().dtype(compute_type(like));
  const auto x = at::arange(grid.cols, options).unsqueeze(0).expand({grid.rows, grid.cols});
  const auto y = at::arange(grid.rows, options).unsqueeze(1).expand({grid.rows, grid.cols});
  return {x.reshape({-1, 1}), y.reshape({-1, 1})};
}

/// Turns adjacent channels (a, b) of the patches of x by `angles` (…, patches, d/2):
/// (a cos − b sin, a sin + b cos). Prefix tokens pass unturned.
Tensor rotated(const Tensor& x, const Tensor& angles, int64_t prefix) {
  const auto patches = x.narrow(2, prefix, size_of(x, 2) - prefix).to(compute_type(x));
  const auto pairs = patches.unflatten(-1, {-1, 2});
  const auto a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  const auto cos = at::cos(angles), sin = at::sin(angles);
  const auto turned =
      at::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2).to(x.scalar_type());
  return prefix == 0 ? turned : at::cat({x.narrow(2, 0, prefix), turned}, 2);
}

}  // namespace

Tensor rope(const Tensor& x, int64_t prefix) {
  // One row of patches: the raster index is the column.
  const bool fits = x.defined() && x.dim() == 4 && prefix >= 0;
  TORCH_CHECK_VALUE(!fits || prefix < size_of(x, 2), "rope: prefix is ", prefix,
                    ", but x has only ", size_of(x, 2),
                    " tokens; a patch behind the prefix tokens was expected");
  const Grid grid{1, fits ? size_of(x, 2) - prefix : 1, prefix};
  check_rotary("rope", x, grid, 2);
  const auto index = coordinates(grid, x).first;
  return rotated(x, index * frequencies(10000, size_of(x, 3) / 2, x), prefix);
}

Tensor rope2d(const Tensor& x, int64_t rows, int64_t cols, int64_t prefix) {
  const Grid grid{rows, cols, prefix};
  check_rotary("rope2d", x, grid, 4);
  const auto [column, row] = coordinates(grid, x);
  const auto theta = frequencies(100, size_of(x, 3) / 4, x);
  return rotated(x, at::cat({column * theta, row * theta}, 1), prefix);
}

Tensor rope2d_mixed(const Tensor& x, const Tensor& fx, const Tensor& fy, int64_t rows, int64_t cols,
                    int64_t prefix) {
  const Grid grid{rows, cols, prefix};
  check_rotary("rope2d_mixed", x, grid, 2);
  check_frequencies("rope2d_mixed", "fx", fx, x);
  check_frequencies("rope2d_mixed", "fy", fy, x);
  const auto [column, row] = coordinates(grid, x);
  const auto per_head = [&](const Tensor& f) { return f.to(compute_type(x)).unsqueeze(1); };
  return rotated(x, column * per_head(fx) + row * per_head(fy), prefix);
}

}  // namespace sape2::ops::public_ops
