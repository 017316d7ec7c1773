#include "nn/encodings/sape2_tables.h"

#include "nn/definitions/table_rows.h"
#include "nn/encodings/tables.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sape2::nn {
namespace {

constexpr int64_t kRowAxis = -2;

// `count` rows past the last one, on the line from row `from` through the last.
at::Tensor continued(const at::Tensor& table, int64_t from, int64_t count) {
  const int64_t last = table.size(kRowAxis) - 1;
  const at::Tensor end = table.narrow(kRowAxis, last, 1);
  const double length = static_cast<double>(std::max<int64_t>(1, last - from));
  const at::Tensor step = (end - table.narrow(kRowAxis, from, 1)) / length;
  return end + step * at::arange(1, count + 1, table.options()).unsqueeze(1);
}

at::Tensor extended(const at::Tensor& table, bool between, int64_t rows) {
  if (!between) return at::cat({table, continued(table, 0, rows)}, kRowAxis);
  const int64_t middle = table.size(kRowAxis) / 2;
  const at::Tensor before = continued(table.flip(kRowAxis), middle, rows / 2).flip(kRowAxis);
  return at::cat({before, table, continued(table, middle, rows / 2)}, kRowAxis);
}

// A table of `rows` rows for an axis of `to` patches, from one for an axis of `from` patches.
at::Tensor resampled(const at::Tensor& table, bool between, int64_t rows, int64_t from,
                     int64_t to) {
  const int64_t origin = between ? table.size(kRowAxis) / 2 : 0;
  const int64_t first = between ? -(rows / 2) : 0;
  // The longest position of an axis of n patches: n to the end, n − 1 between two patches.
  const int64_t longest_from = between ? from - 1 : from, longest_to = between ? to - 1 : to;
  return rows_at(table, kRowAxis,
                 stretched_places(table, origin, longest_from, longest_to, first, rows));
}

}  // namespace

at::Tensor with_rows(const at::Tensor& table, bool between, int64_t rows) {
  const int64_t origin = between ? table.size(kRowAxis) / 2 : 0;
  const int64_t first = origin - (between ? rows / 2 : 0);
  return rows_at(
      table, kRowAxis,
      at::arange(first, first + rows, table.options().dtype(at::kDouble).requires_grad(false)));
}

std::pair<at::Tensor, at::Tensor> resized_tables(const at::Tensor& ex, const at::Tensor& ey,
                                                 const std::string& span, const std::string& resize,
                                                 const EncodingShape& trained,
                                                 const ops::Grid& grid) {
  const bool same = grid.rows == trained.rows && grid.cols == trained.cols;
  if (same || resize == "clamp") return {ex, ey};
  const bool between = span == "between";
  const int64_t needed = exact_table_rows(span, grid.rows, grid.cols);
  if (resize == "resample") {
    return {resampled(ex, between, needed, trained.cols, grid.cols),
            resampled(ey, between, needed, trained.rows, grid.rows)};
  }
  const int64_t more = needed - exact_table_rows(span, trained.rows, trained.cols);
  if (more <= 0) return {ex, ey};
  return {extended(ex, between, more), extended(ey, between, more)};
}

}  // namespace sape2::nn
