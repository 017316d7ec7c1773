#include "sape2/explain/inspection.h"

#include "sape2/base/interruption.h"
#include "sape2/nn/vit.h"
#include "sape2/study/prediction.h"
#include "sape2/train/evaluate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace sape2::explain {
namespace {

constexpr std::int64_t kEntriesAtOnce = std::int64_t{1} << 22;
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The numbers of a tensor; none where it is undefined.
template <typename T>
std::vector<T> numbers(const at::Tensor& tensor, at::ScalarType type) {
  if (!tensor.defined()) return {};
  const at::Tensor values = tensor.to(at::kCPU, type).contiguous();
  const T* first = static_cast<const T*>(values.data_ptr());
  return {first, first + values.numel()};
}

std::vector<float> floats(const at::Tensor& tensor) {
  return numbers<float>(tensor, at::kFloat);
}

infer::AxisRows plain(const ops::AxisRows& rows) {
  return {.gates = floats(rows.gates),
          .positions = floats(rows.positions),
          .clamped = numbers<std::uint8_t>(rows.clamped, at::kByte),
          .bias = floats(rows.bias)};
}

// Of one image: the leading axis of 1 makes no difference.
infer::AttentionRows plain(const ops::AttentionRows& rows) {
  return {.attention = floats(rows.attention),
          .bias = floats(rows.bias),
          .logit_factor = floats(rows.logit_factor),
          .x = plain(rows.x),
          .y = plain(rows.y),
          .gates = floats(rows.gates),
          .positions = floats(rows.positions),
          .clamped = numbers<std::uint8_t>(rows.clamped, at::kByte),
          .is_distance = rows.is_distance};
}

// Of one image: (classes), or (rows, cols, classes).
at::Tensor logits_of(nn::ViT& model, const at::Tensor& tokens, const infer::Grid& grid) {
  if (model.config().head() == nn::Head::image) return model.forward_head(tokens)[0];
  const nn::Size2d patches{grid.rows, grid.cols};
  return model.forward_pixels(tokens, patches, patches)[0].permute({1, 2, 0});
}

}  // namespace

struct Inspection::Layer {
  const nn::LayerEncoding* encoding;
  at::Tensor q, k;  // (1, h, N, d)
};

Inspection::Inspection(std::shared_ptr<nn::ViT> model, const data::Image& image,
                       const InputSize& size, std::int64_t most_patches)
    : Look(model->config(), fit_image(image, model->config().vit, size, most_patches)),
      model_(std::move(model)) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = model_->parameters().front().scalar_type();
  const at::Tensor input =
      train::normalised_images(*model_, study::as_batch(this->image(), config().vit.channels))
          .to(type);
  const at::Tensor tokens = model_->forward_features(
      input, [&](const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k) {
        interruption_point();
        layers_.push_back({&encoding, q.contiguous(), k.contiguous()});
      });
  saw(floats(tokens[0].narrow(0, grid().prefix, grid().patches())),
      floats(logits_of(*model_, tokens, grid())));
}

Inspection::~Inspection() = default;
Inspection::Inspection(Inspection&&) noexcept = default;
Inspection& Inspection::operator=(Inspection&&) noexcept = default;

infer::AttentionRows Inspection::layer_rows(std::int64_t layer,
                                            std::span<const std::int64_t> patches) const {
  const at::NoGradGuard no_grad;
  const Layer& seen = layers_[static_cast<std::size_t>(layer)];
  return plain(seen.encoding->inspect(seen.q, seen.k, {grid().rows, grid().cols, grid().prefix},
                                      {patches.begin(), patches.end()}));
}

at::Tensor Inspection::rows(What what, const Selection& selection,
                            const std::vector<Patch>& patches) const {
  const std::vector<float> entries = values(what, selection, patches);
  return at::tensor(at::ArrayRef<float>(entries)).view({-1, grid().patches()});
}

at::Tensor Inspection::matrix(What what, const Selection& selection, std::int64_t most) const {
  const std::int64_t patches = grid().patches();
  const std::int64_t block = (patches + most - 1) / most;
  const std::int64_t side = (patches + block - 1) / block;
  const std::int64_t blocks_at_once =
      std::max<std::int64_t>(1, kEntriesAtOnce / (patches * heads() * block));
  std::vector<at::Tensor> pieces;
  for (std::int64_t begin = 0; begin < side; begin += blocks_at_once) {
    const std::int64_t first = begin * block;
    const std::int64_t last = std::min(patches, first + blocks_at_once * block);
    std::vector<Patch> from;
    for (std::int64_t i = first; i < last; ++i) from.push_back({i / grid().cols, i % grid().cols});
    at::Tensor piece = rows(what, selection, from);
    if (block > 1) {
      const std::int64_t missing = (block - (last - first) % block) % block;
      piece = at::constant_pad_nd(piece, {0, side * block - patches, 0, missing}, kNothing)
                  .view({-1, block, side, block})
                  .nanmean({1, 3});
    }
    pieces.push_back(piece);
  }
  return at::cat(pieces);
}

std::size_t Inspection::bytes() const {
  std::size_t sum = Look::bytes();
  for (const Layer& layer : layers_) sum += layer.q.nbytes() + layer.k.nbytes();
  return sum;
}

}  // namespace sape2::explain
