#include "infer/encodings/tables.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sape2::infer {
namespace {

/// Where a resized axis reads: four neighbours, clamped to the axis, and their weights.
struct CubicPlace {
  std::array<std::int64_t, 4> index;
  std::array<float, 4> weight;
};

// Keys' cubic convolution with a = −0.75, pixels as squares: what LibTorch's bicubic does.
std::vector<CubicPlace> cubic_places(std::int64_t from, std::int64_t to) {
  constexpr double kA = -0.75;
  const auto near = [&](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [&](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  std::vector<CubicPlace> places(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre =
        static_cast<double>(from) / static_cast<double>(to) * (static_cast<double>(i) + 0.5) - 0.5;
    const double below = std::floor(centre), t = centre - below;
    CubicPlace& place = places[static_cast<std::size_t>(i)];
    for (int k = 0; k < 4; ++k) {
      place.index[static_cast<std::size_t>(k)] =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(below) - 1 + k, 0, from - 1);
    }
    place.weight = {static_cast<float>(far(t + 1)), static_cast<float>(near(t)),
                    static_cast<float>(near(1 - t)), static_cast<float>(far(2 - t))};
  }
  return places;
}

}  // namespace

Table empty_table(std::int64_t groups, std::int64_t rows, std::int64_t width) {
  return {groups, rows, width, std::vector<float>(static_cast<std::size_t>(groups * rows * width))};
}

Table stretched(const Table& table, std::int64_t origin, std::int64_t from, std::int64_t to,
                std::int64_t first, std::int64_t count) {
  Table result = empty_table(table.groups, count, table.width);
  for (std::int64_t i = 0; i < count; ++i) {
    const double n = static_cast<double>(first + i);
    const double place = (to ? n * static_cast<double>(from) / static_cast<double>(to) : 0) +
                         static_cast<double>(origin);
    const double inside = std::clamp(place, 0.0, static_cast<double>(table.rows - 1));
    const auto low = static_cast<std::int64_t>(std::floor(inside));
    const auto high = static_cast<std::int64_t>(std::ceil(inside));
    const auto weight = static_cast<float>(inside - static_cast<double>(low));
    for (std::int64_t g = 0; g < table.groups; ++g) {
      const float* a = table.row(g, low);
      const float* b = table.row(g, high);
      float* out = result.row(g, i);
      for (std::int64_t c = 0; c < table.width; ++c) out[c] = a[c] + weight * (b[c] - a[c]);
    }
  }
  return result;
}

Table resampled_offsets(const Table& table, std::int64_t to) {
  const std::int64_t from = (table.rows - 1) / 2;
  if (from == to) return table;
  return stretched(table, from, from, to, -to, 2 * to + 1);
}

std::vector<float> resampled_tokens(const std::vector<float>& table,
                                    const nn::EncodingShape& trained, const Grid& grid) {
  if (grid.rows == trained.rows && grid.cols == trained.cols) return table;
  const std::int64_t width = trained.width;
  std::vector<float> result(static_cast<std::size_t>(grid.tokens() * width));
  std::copy_n(table.begin(), trained.prefix * width, result.begin());
  const float* source = table.data() + trained.prefix * width;
  float* target = result.data() + grid.prefix * width;
  const auto ys = cubic_places(trained.rows, grid.rows);
  const auto xs = cubic_places(trained.cols, grid.cols);
  for (const CubicPlace& y : ys) {
    for (const CubicPlace& x : xs) {
      for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = 0; b < 4; ++b) {
          const float* from = source + (y.index[a] * trained.cols + x.index[b]) * width;
          const float weight = y.weight[a] * x.weight[b];
          for (std::int64_t c = 0; c < width; ++c) target[c] += weight * from[c];
        }
      }
      target += width;
    }
  }
  return result;
}

}  // namespace sape2::infer
