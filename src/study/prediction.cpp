#include "sape2/study/prediction.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace sape2::study {

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

}  // namespace sape2::study
