#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

#include <vector>

namespace sape2::nn {

at::Tensor rows_at(const at::Tensor& table, int64_t axis, const at::Tensor& places) {
  const at::Tensor inside = places.clamp(0, table.size(axis) - 1);
  const at::Tensor below = inside.floor();
  const at::Tensor low = table.index_select(axis, below.to(at::kLong));
  const at::Tensor high = table.index_select(axis, inside.ceil().to(at::kLong));
  std::vector<int64_t> shape(static_cast<size_t>(table.dim()), 1);
  shape.at(static_cast<size_t>(axis < 0 ? axis + table.dim() : axis)) = -1;
  return at::lerp(low, high, (inside - below).to(table.scalar_type()).view(shape));
}

at::Tensor stretched_places(const at::Tensor& table, int64_t origin, int64_t from, int64_t to,
                            int64_t first, int64_t count) {
  const auto wide = table.options().dtype(at::kDouble).requires_grad(false);
  const at::Tensor n = at::arange(first, first + count, wide);
  return to ? n * from / to + origin : n * 0 + origin;
}

at::Tensor resampled_offsets(const at::Tensor& table, int64_t axis, int64_t to) {
  const int64_t from = (table.size(axis) - 1) / 2;
  if (from == to) return table;
  return rows_at(table, axis, stretched_places(table, from, from, to, -to, 2 * to + 1));
}

at::Tensor resampled_tokens(const at::Tensor& table, const EncodingShape& trained,
                            const ops::Grid& grid) {
  if (grid.rows == trained.rows && grid.cols == trained.cols) return table;
  const at::Tensor prefix = table.narrow(1, 0, trained.prefix);
  const at::Tensor image = table.narrow(1, trained.prefix, trained.rows * trained.cols)
                               .transpose(1, 2)
                               .reshape({1, table.size(2), trained.rows, trained.cols});
  const at::Tensor resized =
      at::upsample_bicubic2d(image, {grid.rows, grid.cols}, /*align_corners=*/false);
  return at::cat({prefix, resized.flatten(2).transpose(1, 2)}, 1);
}

at::Tensor offset_rows(int64_t n, const at::Tensor& like) {
  const at::Tensor places = at::arange(n, like.options().dtype(at::kLong));
  return places.unsqueeze(0) - places.unsqueeze(1) + (n - 1);
}

}  // namespace sape2::nn
