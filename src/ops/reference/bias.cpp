#include "ops/reference/reference.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sape2::ops::reference {
namespace {

at::Tensor subtracted_distances(const at::Tensor& some, const at::Tensor& all) {
  constexpr int64_t kNeverAsMatrixProduct = 2;
  return at::cdist(some, all, 2.0, kNeverAsMatrixProduct);
}

/// ‖u_i − u_n‖ for pairs by subtraction: exactly 0 for equal vectors, where the derivative is 0
/// too.
at::Tensor distances(const at::Tensor& some, const at::Tensor& all) {
  // On a GPU LibTorch's backward pass keeps a number for each pair and entry, and counts them in 32
  // bits: large problems are cut into pieces, of several heads or of some rows of one.
  constexpr int64_t kMost = int64_t{1} << 29;
  const int64_t of_row = std::max<int64_t>(1, all.size(-2) * all.size(-1));
  const int64_t of_head = some.size(-2) * of_row;
  const auto heads = some.flatten(0, -3), others = all.flatten(0, -3);
  if (!some.is_cuda() || heads.size(0) * of_head <= kMost) return subtracted_distances(some, all);
  const int64_t heads_at_once = std::max<int64_t>(1, kMost / of_head);
  const int64_t rows_at_once = std::max<int64_t>(1, kMost / (heads_at_once * of_row));
  std::vector<at::Tensor> whole;
  for (int64_t head = 0; head < heads.size(0); head += heads_at_once) {
    const int64_t count = std::min(heads_at_once, heads.size(0) - head);
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : heads.narrow(0, head, count).split(rows_at_once, 1))
      parts.push_back(subtracted_distances(part, others.narrow(0, head, count)));
    whole.push_back(at::cat(parts, 1));
  }
  auto sizes = some.sizes().vec();
  sizes.back() = all.size(-2);
  return at::cat(whole, 0).view(sizes);
}

/// Entry x (`axis` −1) or y (`axis` −2) of each vector, for every patch of the grid.
at::Tensor read_directly(const at::Tensor& some, const Grid& grid, int64_t axis) {
  const auto along = some.unsqueeze(axis == -1 ? -2 : -1);  // (…, R, 1, W) or (…, R, H, 1)
  auto sizes = some.sizes().vec();
  sizes.back() = grid.rows;
  sizes.push_back(grid.cols);
  return along.expand(sizes).flatten(-2);
}

at::Tensor summed_parts(const at::Tensor& bias) {
  return bias.dim() == 5 ? bias.sum(0) : bias;
}

}  // namespace

std::pair<at::Tensor, at::Tensor> bias_parts(const at::Tensor& ux, const at::Tensor& uy,
                                             const Grid& grid, Form form, const at::Tensor& some) {
  const auto chosen = [&](const at::Tensor& u) {
    return some.defined() ? u.index_select(-2, some) : u;
  };
  if (form == Form::distance) {
    return {summed_parts(distances(chosen(ux), ux)), summed_parts(distances(chosen(uy), uy))};
  }
  const auto x = read_directly(chosen(ux), grid, -1), y = read_directly(chosen(uy), grid, -2);
  if (form == Form::direct) return {summed_parts(x), summed_parts(y)};
  // The other legs: what the vectors of all patches hold at the places of these, (…, R, H·W).
  const auto from_others = [&](const at::Tensor& u, const at::Tensor& direct, const auto& place) {
    return (some.defined() ? u.index_select(-1, place()) : direct).transpose(-1, -2);
  };
  const auto column = [&] { return some.remainder(grid.cols); };
  const auto row = [&] { return some.div(grid.cols, "floor"); };
  return {summed_parts((x + from_others(ux, x, column)) / 2),
          summed_parts((y + from_others(uy, y, row)) / 2)};
}

at::Tensor bias(const at::Tensor& ux, const at::Tensor& uy, const Grid& grid, Form form) {
  const auto x = widened(ux).contiguous(), y = widened(uy).contiguous();
  const auto [along_x, along_y] = bias_parts(x, y, grid, form);
  return at::constant_pad_nd(along_x + along_y, {grid.prefix, 0, grid.prefix, 0});
}

}  // namespace sape2::ops::reference
