#include "sape2/explain/look.h"

#include "sape2/base/error.h"
#include "sape2/base/interruption.h"
#include "sape2/nn/encoding_definition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace sape2::explain {
namespace {

// Values of one layer, (heads, R, patches).
using Values = std::vector<float>;

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// The entries of patches from (heads, R, tokens).
Values without_prefix(const Values& values, const infer::Grid& grid) {
  if (grid.prefix == 0) return values;
  Values patches;
  const auto tokens = at(grid.tokens());
  patches.reserve(values.size() / tokens * at(grid.patches()));
  for (std::size_t begin = 0; begin < values.size(); begin += tokens) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    patches.insert(patches.end(), first + grid.prefix, first + grid.tokens());
  }
  return patches;
}

// Calls work(row of x, row of y, patch, its values) for each head and patch.
template <typename Work>
Values over_grid(const Values& x, const Values& y, const infer::Grid& grid,
                 const std::vector<Patch>& patches, float start, const Work& work) {
  const std::size_t count = x.size() / at(grid.cols);
  Values result(count * at(grid.patches()), start);
  for (std::size_t i = 0; i < count; ++i) {
    work(x.data() + i * at(grid.cols), y.data() + i * at(grid.rows), patches[i % patches.size()],
         result.data() + i * at(grid.patches()));
  }
  return result;
}

// Gates along the own row and column; elsewhere there are none.
Values crosses(const infer::AttentionRows& rows, const infer::Grid& grid,
               const std::vector<Patch>& patches) {
  return over_grid(rows.x.gates, rows.y.gates, grid, patches,
                   std::numeric_limits<float>::quiet_NaN(),
                   [&](const float* x, const float* y, const Patch& patch, float* to) {
                     std::copy_n(x, grid.cols, to + patch.y * grid.cols);
                     for (std::int64_t i = 0; i < grid.rows; ++i)
                       to[i * grid.cols + patch.x] = y[i];
                   });
}

// How far apart soft positions are: |p_m − p_i| along each axis, or in raster order.
Values position_distances(const infer::AttentionRows& rows, const infer::Grid& grid,
                          const std::vector<Patch>& patches) {
  if (rows.positions.empty()) {
    return over_grid(rows.x.positions, rows.y.positions, grid, patches, 0,
                     [&](const float* x, const float* y, const Patch& patch, float* to) {
                       for (std::int64_t i = 0; i < grid.patches(); ++i) {
                         to[i] = std::abs(y[i / grid.cols] - y[patch.y]) +
                                 std::abs(x[i % grid.cols] - x[patch.x]);
                       }
                     });
  }
  Values distances = without_prefix(rows.positions, grid);
  const std::size_t count = distances.size() / at(grid.patches());
  for (std::size_t i = 0; i < count; ++i) {
    float* row = distances.data() + i * at(grid.patches());
    const Patch& patch = patches[i % patches.size()];
    const float own = row[patch.y * grid.cols + patch.x];
    std::transform(row, row + grid.patches(), row, [&](float p) { return std::abs(p - own); });
  }
  return distances;
}

Values quantity(const infer::AttentionRows& rows, What what, const infer::Grid& grid,
                const std::vector<Patch>& patches) {
  switch (what) {
    case What::bias:
      return rows.bias;
    case What::bias_x:
      return rows.x.bias;
    case What::bias_y:
      return rows.y.bias;
    case What::attention:
      return without_prefix(rows.attention, grid);
    case What::positions:
      return position_distances(rows, grid, patches);
    case What::gates:
      break;
  }
  return rows.gates.empty() ? crosses(rows, grid, patches) : without_prefix(rows.gates, grid);
}

// Adds one head of (heads, …), or the mean of all, to sums.
void add_selected(std::vector<double>& sums, std::span<const float> values, std::int64_t heads,
                  const Selection& selection) {
  const std::size_t size = values.size() / at(heads);
  sums.resize(size);
  const std::int64_t first = selection.head.value_or(0);
  const std::int64_t count = selection.head ? 1 : heads;
  for (std::int64_t head = first; head < first + count; ++head) {
    for (std::size_t i = 0; i < size; ++i) {
      sums[i] += static_cast<double>(values[at(head) * size + i]) / static_cast<double>(count);
    }
  }
}

std::vector<float> shared_out(const std::vector<double>& sums, std::size_t layers) {
  std::vector<float> means;
  means.reserve(sums.size());
  for (const double sum : sums) {
    means.push_back(static_cast<float>(sum / static_cast<double>(layers)));
  }
  return means;
}

}  // namespace

Look::Look(nn::ModelConfig config, data::Image image)
    : config_(std::move(config)), image_(std::move(image)) {
  const nn::ViTConfig& vit = config_.vit;
  grid_ = {image_.height / vit.patch_size.height, image_.width / vit.patch_size.width,
           vit.prefix()};
}

void Look::saw(std::vector<float> features, std::span<const float> logits) {
  features_ = std::move(features);
  if (config_.head() == nn::Head::pixels) {
    pixel_logits_.emplace(logits, nn::Size2d{grid_.rows, grid_.cols}, config_.vit.classes);
  } else {
    predictions_ = infer::ranked(config_, logits);
  }
  const infer::AttentionRows seen = rows_of(0, {{0, 0}});
  if (!seen.bias.empty()) offered_.push_back(What::bias);
  if (!seen.x.bias.empty()) offered_.insert(offered_.end(), {What::bias_x, What::bias_y});
  if (!seen.x.gates.empty() || !seen.gates.empty()) {
    offered_.insert(offered_.end(), {What::gates, What::positions});
  }
  offered_.push_back(What::attention);
  is_distance_ = seen.is_distance;
}

infer::AttentionRows Look::rows_of(std::int64_t layer, const std::vector<Patch>& patches) const {
  interruption_point();
  std::vector<std::int64_t> numbers;
  for (const Patch& patch : patches) numbers.push_back(patch.y * grid_.cols + patch.x);
  return layer_rows(layer, numbers);
}

bool Look::offers(What what) const {
  return std::ranges::find(offered_, what) != offered_.end();
}

void Look::require(What what) const {
  if (offers(what)) return;
  std::vector<std::string_view> names;
  for (const What offered : offered_) names.push_back(to_string(offered));
  const nn::EncodingSpec& spec = config_.encoding;
  const std::string why = offers(What::bias)
                              ? ""
                              : fmt::format(" ({}): it adds nothing to the logits",
                                            nn::encoding_definition(spec.name()).summary);
  throw Error(fmt::format("the encoding {} has no {}{}; look at its {}", spec.to_string(),
                          to_string(what), why, fmt::join(names, ", ")));
}

ScaleKind Look::scale_kind(What what) const {
  switch (what) {
    case What::gates:
      return ScaleKind::gate;
    case What::positions:
      return ScaleKind::distance;
    case What::attention:
      return ScaleKind::share;
    default:
      return is_distance_ ? ScaleKind::distance : ScaleKind::balanced;
  }
}

void Look::check(const Selection& selection) const {
  if (selection.layer && (*selection.layer < 0 || *selection.layer >= layers())) {
    throw Error(
        fmt::format("the model has no layer {}; it has 1 … {}", *selection.layer + 1, layers()));
  }
  if (selection.head && (*selection.head < 0 || *selection.head >= heads())) {
    throw Error(
        fmt::format("the model has no head {}; it has 1 … {}", *selection.head + 1, heads()));
  }
}

void Look::check(const Patch& patch) const {
  if (patch.y >= 0 && patch.y < grid_.rows && patch.x >= 0 && patch.x < grid_.cols) return;
  throw Error(fmt::format("there is no patch {},{}; rows are 0 … {} and columns 0 … {} here",
                          patch.y, patch.x, grid_.rows - 1, grid_.cols - 1));
}

std::vector<std::int64_t> Look::selected(const Selection& selection) const {
  check(selection);
  if (selection.layer) return {*selection.layer};
  std::vector<std::int64_t> all(at(layers()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<float> Look::values(What what, const Selection& selection,
                                const std::vector<Patch>& patches) const {
  require(what);
  for (const Patch& patch : patches) check(patch);
  const auto layers = selected(selection);
  std::vector<double> sums;
  for (const std::int64_t layer : layers) {
    add_selected(sums, quantity(rows_of(layer, patches), what, grid_, patches), heads(), selection);
  }
  return shared_out(sums, layers.size());
}

SoftPositions Look::positions(const Selection& selection, const Patch& patch) const {
  require(What::positions);
  check(patch);
  const auto layers = selected(selection);
  std::vector<double> x, y, raster;
  for (const std::int64_t layer : layers) {
    const infer::AttentionRows rows = rows_of(layer, {patch});
    add_selected(x, rows.x.positions, heads(), selection);
    add_selected(y, rows.y.positions, heads(), selection);
    add_selected(raster, without_prefix(rows.positions, grid_), heads(), selection);
  }
  return {shared_out(x, layers.size()), shared_out(y, layers.size()),
          shared_out(raster, layers.size())};
}

std::size_t Look::bytes() const {
  return image_.pixels.size() + features_.size() * sizeof(float) +
         (pixel_logits_ ? pixel_logits_->bytes() : 0);
}

}  // namespace sape2::explain
