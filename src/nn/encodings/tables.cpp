#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace sape2::nn {

at::Tensor rows_at(const at::Tensor& table, int64_t axis, const std::vector<double>& places) {
  const double last = static_cast<double>(table.size(axis) - 1);
  std::vector<int64_t> below, above;
  std::vector<double> weight;
  for (double place : places) {
    place = std::clamp(place, 0.0, last);
    below.push_back(static_cast<int64_t>(std::floor(place)));
    above.push_back(static_cast<int64_t>(std::ceil(place)));
    weight.push_back(place - std::floor(place));
  }
  const auto index = at::TensorOptions(at::kLong);
  const at::Tensor low = table.index_select(axis, at::tensor(below, index).to(table.device()));
  const at::Tensor high = table.index_select(axis, at::tensor(above, index).to(table.device()));
  std::vector<int64_t> shape(static_cast<size_t>(table.dim()), 1);
  shape.at(static_cast<size_t>(axis < 0 ? axis + table.dim() : axis)) = -1;
  return at::lerp(
      low, high,
      at::tensor(weight, at::kDouble).to(table.device(), table.scalar_type()).view(shape));
}

at::Tensor resampled_offsets(const at::Tensor& table, int64_t axis, int64_t to) {
  const int64_t from = (table.size(axis) - 1) / 2;
  if (from == to) return table;
  std::vector<double> places;
  for (int64_t offset = -to; offset <= to; ++offset) {
    places.push_back(from +
                     (to ? static_cast<double>(offset * from) / static_cast<double>(to) : 0));
  }
  return rows_at(table, axis, places);
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
