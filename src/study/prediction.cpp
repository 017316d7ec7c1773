#include "sape2/study/prediction.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"
#include "sape2/data/mask.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace sape2::study {
namespace {

constexpr std::int64_t kMostPixelLogits = std::int64_t{1} << 28;

}  // namespace

at::Tensor as_batch(const data::Image& image, std::int64_t channels) {
  if (image.channels == 3 && channels == 1) return as_batch(data::to_grey(image), channels);
  if (image.channels == channels) {
    return at::tensor(at::ArrayRef<std::uint8_t>(image.pixels), at::kByte)
        .view({1, image.height, image.width, image.channels})
        .permute({0, 3, 1, 2})
        .contiguous();
  }
  throw Error(fmt::format("the model takes images of {} channels, a picture has {}", channels,
                          image.channels));
}

std::vector<Prediction> ranked(const nn::ModelConfig& config, const at::Tensor& logits,
                               std::int64_t top) {
  const at::Tensor numbers = logits.to(at::kCPU, at::kFloat).contiguous();
  return infer::ranked(config,
                       {numbers.data_ptr<float>(), static_cast<std::size_t>(numbers.numel())}, top);
}

std::vector<Prediction> predict(nn::ViT& model, const data::Image& image, std::int64_t top,
                                std::int64_t size) {
  const nn::ModelConfig& config = model.config();
  const nn::Size2d wanted = size > 0 ? nn::Size2d{size, size} : config.vit.image_size;
  const data::Image fitted = data::resize_to_cover(image, wanted.height, wanted.width);
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = as_batch(fitted, config.vit.channels);
  const at::Tensor logits = model.forward(train::normalised_images(model, bytes));
  return ranked(config, logits[0], top);
}

MaskPrediction predict_mask(nn::ViT& model, const data::Image& image, std::int64_t size) {
  const nn::ViTConfig& vit = model.config().vit;
  const nn::Size2d wanted = size > 0 ? nn::Size2d{size, size} : vit.image_size;
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = as_batch(data::resize(image, wanted.height, wanted.width), vit.channels);
  const at::Tensor features = model.forward_features(train::normalised_images(model, bytes));
  const nn::Size2d grid{wanted.height / vit.patch_size.height, wanted.width / vit.patch_size.width};
  // Logits of a very large image would not fit into memory: its mask is enlarged instead.
  const nn::Size2d full{image.height, image.width};
  const bool small = full.height * full.width * vit.classes <= kMostPixelLogits;
  const at::Tensor logits = model.forward_pixels(features, grid, small ? full : wanted);
  if (!at::isfinite(logits).all().item<bool>()) {
    throw Error("the model's output is not a finite number; its weights are damaged");
  }
  const at::Tensor classes = logits.argmax(1)[0].to(at::kCPU, at::kByte).contiguous();
  const auto* first = classes.data_ptr<std::uint8_t>();
  MaskPrediction result{{classes.size(0), classes.size(1), 1, {first, first + classes.numel()}},
                        {}};
  result.mask = data::resize_nearest(result.mask, full.height, full.width);
  const at::Tensor counts = at::bincount(classes.flatten().to(at::kLong), {}, vit.classes);
  for (std::int64_t i = 0; i < vit.classes; ++i) {
    result.shares.push_back(counts[i].item<double>() / static_cast<double>(classes.numel()));
  }
  return result;
}

}  // namespace sape2::study
