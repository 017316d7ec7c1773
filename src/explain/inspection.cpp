#include "sape2/explain/inspection.h"

#include "sape2/base/error.h"
#include "sape2/base/interruption.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include "explain/inspected_layer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace sape2::explain {
namespace {

constexpr std::int64_t kEntriesAtOnce = std::int64_t{1} << 22;
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Values along rows (h, R, cols) and columns (h, R, rows) laid out on the grid, (h, R, patches).
at::Tensor as_crosses(const at::Tensor& x, const at::Tensor& y, const std::vector<Patch>& patches) {
  at::Tensor crosses =
      at::full({x.size(0), x.size(1), y.size(2), x.size(2)}, kNothing, x.options());
  for (std::size_t i = 0; i < patches.size(); ++i) {
    const at::Tensor one = crosses.select(1, static_cast<std::int64_t>(i));
    one.select(1, patches[i].y).copy_(x.select(1, static_cast<std::int64_t>(i)));
    one.select(2, patches[i].x).copy_(y.select(1, static_cast<std::int64_t>(i)));
  }
  return crosses.flatten(2);
}

// |p_m − p_i| along one axis: positions (h, R, n), and where each patch itself stands.
at::Tensor from_own_place(const at::Tensor& positions, const std::vector<std::int64_t>& places) {
  const at::Tensor index = at::tensor(places, at::kLong)
                               .to(positions.device())
                               .view({1, -1, 1})
                               .expand({positions.size(0), -1, 1});
  return (positions - positions.gather(2, index)).abs();
}

at::Tensor position_distances(const ops::AttentionRows& rows, const ops::Grid& grid,
                              const std::vector<Patch>& patches) {
  std::vector<std::int64_t> xs, ys;
  for (const Patch& patch : patches) {
    xs.push_back(patch.x);
    ys.push_back(patch.y);
  }
  if (rows.positions.defined()) {
    const at::Tensor raster = rows.positions[0].narrow(2, grid.prefix, grid.patches());
    return from_own_place(raster, numbers_of(patches, grid));
  }
  const at::Tensor x = from_own_place(rows.x.positions[0], xs);
  const at::Tensor y = from_own_place(rows.y.positions[0], ys);
  return (y.unsqueeze(3) + x.unsqueeze(2)).flatten(2);
}

}  // namespace

ops::PatchList numbers_of(const std::vector<Patch>& patches, const ops::Grid& grid) {
  ops::PatchList numbers;
  for (const Patch& patch : patches) numbers.push_back(patch.y * grid.cols + patch.x);
  return numbers;
}

Inspection::Inspection(std::shared_ptr<nn::ViT> model, const data::Image& image,
                       const InputSize& size, std::int64_t most_patches)
    : model_(std::move(model)) {
  const at::NoGradGuard no_grad;
  const nn::ViTConfig& vit = model_->config().vit;
  image_ = fit_image(image, vit, size, most_patches);
  grid_ = {image_.height / vit.patch_size.height, image_.width / vit.patch_size.width,
           vit.prefix()};
  const at::ScalarType type = model_->parameters().front().scalar_type();
  const at::Tensor input =
      train::normalised_images(*model_, study::as_batch(image_, vit.channels)).to(type);
  const at::Tensor tokens = model_->forward_features(
      input, [&](const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k) {
        interruption_point();
        layers_.push_back({&encoding, q.contiguous(), k.contiguous()});
      });
  features_ = tokens[0].narrow(0, grid_.prefix, grid_.patches()).cpu();
  predictions_ = study::ranked(model_->config(), model_->forward_head(tokens)[0]);

  const Layer& first = layers_.front();
  const ops::AttentionRows seen = first.encoding->inspect(first.q, first.k, grid_, {0});
  if (seen.bias.defined()) offered_.push_back(What::bias);
  if (seen.x.bias.defined()) offered_.insert(offered_.end(), {What::bias_x, What::bias_y});
  if (seen.x.gates.defined() || seen.gates.defined()) {
    offered_.insert(offered_.end(), {What::gates, What::positions});
  }
  offered_.push_back(What::attention);
  is_distance_ = seen.is_distance;
}

Inspection::~Inspection() = default;
Inspection::Inspection(Inspection&&) noexcept = default;
Inspection& Inspection::operator=(Inspection&&) noexcept = default;

std::int64_t Inspection::layers() const {
  return static_cast<std::int64_t>(layers_.size());
}

std::int64_t Inspection::heads() const {
  return model_->config().vit.heads;
}

bool Inspection::offers(What what) const {
  return std::ranges::find(offered_, what) != offered_.end();
}

void Inspection::require(What what) const {
  if (offers(what)) return;
  std::vector<std::string_view> names;
  for (const What offered : offered_) names.push_back(to_string(offered));
  const nn::EncodingSpec& spec = model_->config().encoding;
  const std::string why = offers(What::bias)
                              ? ""
                              : fmt::format(" ({}): it adds nothing to the logits",
                                            nn::encoding_definition(spec.name()).summary);
  throw Error(fmt::format("the encoding {} has no {}{}; look at its {}", spec.to_string(),
                          to_string(what), why, fmt::join(names, ", ")));
}

ScaleKind Inspection::scale_kind(What what) const {
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

void Inspection::check(const Selection& selection) const {
  if (selection.layer && (*selection.layer < 0 || *selection.layer >= layers())) {
    throw Error(
        fmt::format("the model has no layer {}; it has 1 … {}", *selection.layer + 1, layers()));
  }
  if (selection.head && (*selection.head < 0 || *selection.head >= heads())) {
    throw Error(
        fmt::format("the model has no head {}; it has 1 … {}", *selection.head + 1, heads()));
  }
}

void Inspection::check(const Patch& patch) const {
  if (patch.y >= 0 && patch.y < grid_.rows && patch.x >= 0 && patch.x < grid_.cols) return;
  throw Error(fmt::format("there is no patch {},{}; rows are 0 … {} and columns 0 … {} here",
                          patch.y, patch.x, grid_.rows - 1, grid_.cols - 1));
}

std::vector<const Inspection::Layer*> Inspection::selected(const Selection& selection) const {
  check(selection);
  if (selection.layer) return {&layers_[static_cast<std::size_t>(*selection.layer)]};
  std::vector<const Layer*> all;
  for (const Layer& layer : layers_) all.push_back(&layer);
  return all;
}

// (h, R, patches)
at::Tensor Inspection::layer_rows(const Layer& layer, What what,
                                  const std::vector<Patch>& patches) const {
  const ops::AttentionRows rows =
      layer.encoding->inspect(layer.q, layer.k, grid_, numbers_of(patches, grid_));
  switch (what) {
    case What::bias:
      return rows.bias[0];
    case What::bias_x:
      return rows.x.bias[0];
    case What::bias_y:
      return rows.y.bias[0];
    case What::attention:
      return rows.attention[0].narrow(2, grid_.prefix, grid_.patches());
    case What::positions:
      return position_distances(rows, grid_, patches);
    case What::gates:
      break;
  }
  if (rows.gates.defined()) return rows.gates[0].narrow(2, grid_.prefix, grid_.patches());
  return as_crosses(rows.x.gates[0], rows.y.gates[0], patches);
}

at::Tensor Inspection::rows(What what, const Selection& selection,
                            const std::vector<Patch>& patches) const {
  const at::NoGradGuard no_grad;
  require(what);
  for (const Patch& patch : patches) check(patch);
  const auto layers = selected(selection);
  at::Tensor sum;
  for (const Layer* layer : layers) {
    interruption_point();
    const at::Tensor values = layer_rows(*layer, what, patches);
    const at::Tensor one = selection.head ? values[*selection.head] : values.mean(0);
    sum = sum.defined() ? sum + one : one;
  }
  return (sum / static_cast<double>(layers.size())).cpu();
}

SoftPositions Inspection::positions(const Selection& selection, const Patch& patch) const {
  const at::NoGradGuard no_grad;
  require(What::positions);
  check(patch);
  const auto layers = selected(selection);
  SoftPositions sum;
  const auto add = [&](at::Tensor& to, const at::Tensor& values) {  // (1, h, 1, n)
    if (!values.defined()) return;
    const at::Tensor heads = values[0].select(1, 0);
    const at::Tensor one = selection.head ? heads[*selection.head] : heads.mean(0);
    const at::Tensor share = (one / static_cast<double>(layers.size())).cpu();
    to = to.defined() ? to + share : share;
  };
  for (const Layer* layer : layers) {
    interruption_point();
    const ops::AttentionRows rows =
        layer->encoding->inspect(layer->q, layer->k, grid_, numbers_of({patch}, grid_));
    add(sum.x, rows.x.positions);
    add(sum.y, rows.y.positions);
    if (rows.positions.defined()) {
      add(sum.raster, rows.positions.narrow(3, grid_.prefix, grid_.patches()));
    }
  }
  return sum;
}

at::Tensor Inspection::matrix(What what, const Selection& selection, std::int64_t most) const {
  const std::int64_t patches = grid_.patches();
  const std::int64_t block = (patches + most - 1) / most;
  const std::int64_t side = (patches + block - 1) / block;
  const std::int64_t blocks_at_once =
      std::max<std::int64_t>(1, kEntriesAtOnce / (patches * heads() * block));
  std::vector<at::Tensor> pieces;
  for (std::int64_t begin = 0; begin < side; begin += blocks_at_once) {
    const std::int64_t first = begin * block;
    const std::int64_t last = std::min(patches, first + blocks_at_once * block);
    std::vector<Patch> from;
    for (std::int64_t i = first; i < last; ++i) from.push_back({i / grid_.cols, i % grid_.cols});
    at::Tensor values = rows(what, selection, from);
    if (block > 1) {
      const std::int64_t missing = (block - (last - first) % block) % block;
      values = at::constant_pad_nd(values, {0, side * block - patches, 0, missing}, kNothing)
                   .view({-1, block, side, block})
                   .nanmean({1, 3});
    }
    pieces.push_back(values);
  }
  return at::cat(pieces);
}

std::size_t Inspection::bytes() const {
  std::size_t sum = image_.pixels.size() + features_.nbytes();
  for (const Layer& layer : layers_) sum += layer.q.nbytes() + layer.k.nbytes();
  return sum;
}

}  // namespace sape2::explain
