#include "study/attention_view.h"

#include "sape2/nn/vit.h"

#include "ops/inspection/attention_weights.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::study {
namespace {

constexpr double kLeastProbability = 1e-30;

at::Tensor between_patches(const at::Tensor& square, int64_t prefix) {
  const int64_t patches = square.size(2) - prefix;
  return square.narrow(2, prefix, patches).narrow(3, prefix, patches);
}

LayerView view_layer(const nn::LayerEncoding& encoding, const at::Tensor& q, const at::Tensor& k,
                     const ops::Grid& grid) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor all = ops::attention_weights(
      q, [&](const at::Tensor& v) { return encoding.attend(q, k, v, grid); });
  const at::Tensor weights = between_patches(all, grid.prefix);
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
