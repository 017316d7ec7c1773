#include "sape2/study/prediction.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace sape2::study {
namespace {

// Weights of red, green and blue in a grey value (ITU-R BT.601).
constexpr double kRed = 0.299, kGreen = 0.587, kBlue = 0.114;

}  // namespace

at::Tensor as_batch(const data::Image& image, std::int64_t channels) {
  const at::Tensor bytes = at::tensor(at::ArrayRef<std::uint8_t>(image.pixels), at::kByte)
                               .view({1, image.height, image.width, image.channels})
                               .permute({0, 3, 1, 2});
  if (image.channels == channels) return bytes.contiguous();
  if (image.channels == 3 && channels == 1) {
    const at::Tensor weights = at::tensor({kRed, kGreen, kBlue}, at::kFloat).view({1, 3, 1, 1});
    return (bytes.to(at::kFloat) * weights).sum(1, true).round().to(at::kByte);
  }
  throw Error(fmt::format("the model takes images of {} channels, a picture has {}", channels,
                          image.channels));
}

std::vector<Prediction> ranked(const nn::ModelConfig& config, const at::Tensor& logits,
                               std::int64_t top) {
  if (!at::isfinite(logits).all().item<bool>()) {
    throw Error(
        "the model's output is not a finite number for this image, so it says nothing; its weights "
        "or the normalisation are damaged");
  }
  const std::int64_t count = top > 0 ? std::min(top, config.vit.classes) : config.vit.classes;
  const auto [values, indices] = at::softmax(logits, 0, at::kFloat).cpu().topk(count);
  std::vector<Prediction> predictions;
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const auto index = indices[i].item<std::int64_t>();
    const std::string name = config.class_names.empty()
                                 ? fmt::format("class {}", index)
                                 : config.class_names[static_cast<std::size_t>(index)];
    predictions.push_back({index, name, values[i].item<double>()});
  }
  return predictions;
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

}  // namespace sape2::study
