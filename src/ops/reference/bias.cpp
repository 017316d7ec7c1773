#include "ops/reference/reference.h"

#include <ATen/ATen.h>

namespace sape2::ops::reference {
namespace {

/// ‖u_i − u_n‖ for all pairs by subtraction: exactly 0 for equal vectors, where the derivative is 0
/// too.
at::Tensor distances(const at::Tensor& u) {
  constexpr int64_t kNeverAsMatrixProduct = 2;
  return at::cdist(u, u, 2.0, kNeverAsMatrixProduct);
}

at::Tensor patch_bias(const at::Tensor& ux, const at::Tensor& uy, const Grid& grid, Form form) {
  if (form == Form::distance) return distances(ux) + distances(uy);
  const int64_t images = ux.size(0), heads = ux.size(1), patches = grid.patches();
  const auto along_x = ux.view({images, heads, patches, 1, grid.cols});
  const auto along_y = uy.view({images, heads, patches, grid.rows, 1});
  return (along_x + along_y).reshape({images, heads, patches, patches});
}

}  // namespace

at::Tensor bias(const at::Tensor& ux, const at::Tensor& uy, const Grid& grid, Form form) {
  const auto x = widened(ux).contiguous(), y = widened(uy).contiguous();
  const auto patches =
      x.dim() == 4 ? patch_bias(x, y, grid, form)
                   : patch_bias(x[0], y[0], grid, form) + patch_bias(x[1], y[1], grid, form);
  return at::constant_pad_nd(patches, {grid.prefix, 0, grid.prefix, 0});
}

}  // namespace sape2::ops::reference
