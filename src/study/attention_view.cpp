#include "study/attention_view.h"

#include "sape2/nn/vit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

constexpr double kLeastProbability = 1e-30;

// Attention to values that are unit vectors is the row of weights itself; values have d channels,
// so d columns are found at a time.
at::Tensor weights_of(const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k,
                      const ops::Grid& grid) {
  const int64_t tokens = q.size(2), channels = q.size(3);
  std::vector<at::Tensor> columns;
  for (int64_t begin = 0; begin < tokens; begin += channels) {
    const int64_t count = std::min(channels, tokens - begin);
    at::Tensor values = at::zeros({tokens, channels}, q.options());
    values.narrow(0, begin, count).narrow(1, 0, count).fill_diagonal_(1);
    const at::Tensor part = encoding.attend(q, k, values.expand_as(q).contiguous(), grid);
    columns.push_back(part.narrow(3, 0, count));
  }
  return at::cat(columns, 3);  // (B, h, N, N)
}

at::Tensor between_patches(const at::Tensor& square, int64_t prefix) {
  const int64_t patches = square.size(2) - prefix;
  return square.narrow(2, prefix, patches).narrow(3, prefix, patches);
}

LayerView view_layer(const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k,
                     const ops::Grid& grid) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor weights = between_patches(weights_of(encoding, q, k, grid), grid.prefix);
  const at::Tensor logits =
      between_patches(at::matmul(q, k.transpose(2, 3)) * scale, grid.prefix).to(at::kFloat);
  LayerView view;
  view.attention = (weights / weights.sum(3, true)).to(at::kFloat);
  view.content = at::softmax(logits, 3);
  const at::Tensor bias = view.attention.clamp_min(kLeastProbability).log() - logits;
  view.bias = bias - bias.mean(3, true);
  return view;
}

}  // namespace

ModelView view_model(nn::ViT& model, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  const nn::ViTConfig& vit = model.config().vit;
  const ops::Grid grid{images.size(2) / vit.patch_size.height,
                       images.size(3) / vit.patch_size.width, vit.prefix()};
  ModelView view;
  const at::Tensor features = model.forward_features(
      images, [&](const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k) {
        view.layers.push_back(view_layer(encoding, q, k, grid));
      });
  view.features = features.narrow(1, grid.prefix, grid.patches());
  return view;
}

}  // namespace sape2::study
