#pragma once

#include "sape2/data/image.h"
#include "sape2/infer/pixel_logits.h"
#include "sape2/infer/prediction.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sape2::nn {
struct ModelConfig;
class ViT;
}  // namespace sape2::nn

namespace sape2::study {

using infer::MaskPrediction;
using infer::Prediction;

/// The most probable classes of an image, the best first. The image is scaled to cover `size` ×
/// `size` pixels (0: the size the model was trained at) and its middle is used; a model of one
/// channel gets its brightness.
std::vector<Prediction> predict(nn::ViT& model, const data::Image& image, std::int64_t top,
                                std::int64_t size = 0);

/// What a model with nn::Head::pixels sees, as large as the image. The whole image is stretched to
/// `size` × `size` pixels (0: the size the model was trained at), and the logits are upsampled to
/// the image's own size. Throws Error if a logit is not a finite number.
MaskPrediction predict_mask(nn::ViT& model, const data::Image& image, std::int64_t size = 0);

/// A picture as bytes `[1, channels, height, width]`; one channel is its brightness.
at::Tensor as_batch(const data::Image& image, std::int64_t channels);

/// The classes that logits `[classes]` make probable, the best first, all or the best `top`. Throws
/// Error if a logit is not a finite number.
std::vector<Prediction> ranked(const nn::ModelConfig& config, const at::Tensor& logits,
                               std::int64_t top = 0);

}  // namespace sape2::study
