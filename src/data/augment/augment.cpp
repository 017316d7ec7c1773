#include "sape2/data/augment.h"

#include "sape2/base/error.h"

#include "data/augment/upload.h"

#include <fmt/format.h>

namespace sape2::data {
namespace {

void check_range(const char* what, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    throw Error(fmt::format("{} is {}, expected {} … {}", what, value, low, high));
  }
}

at::Tensor channel_values(const std::vector<double>& values, const at::Tensor& images) {
  const std::vector<float> floats(values.begin(), values.end());
  return upload(floats, {1, static_cast<std::int64_t>(floats.size()), 1, 1}, images.device());
}

}  // namespace

at::Tensor normalise(const at::Tensor& images, const Normalisation& normalisation) {
  const auto channels = static_cast<std::size_t>(images.size(1));
  if (normalisation.mean.size() != channels || normalisation.deviation.size() != channels) {
    throw Error(fmt::format("normalise: {} means and {} deviations for images of {} channels",
                            normalisation.mean.size(), normalisation.deviation.size(), channels));
  }
  std::vector<double> mean, factor;
  for (std::size_t c = 0; c < channels; ++c) {
    if (!(normalisation.deviation[c] > 0)) {
      throw Error(fmt::format("normalise: the deviation of channel {} is {}, expected more than 0",
                              c, normalisation.deviation[c]));
    }
    mean.push_back(255 * normalisation.mean[c]);
    factor.push_back(1 / (255 * normalisation.deviation[c]));
  }
  return images.to(at::kFloat)
      .sub_(channel_values(mean, images))
      .mul_(channel_values(factor, images));
}

void check_augment_options(const AugmentOptions& options) {
  check_range("the crop's padding", static_cast<double>(options.crop_padding), 0, 1024);
  check_range("the probability of a flip", options.flip, 0, 1);
  check_range("RandAugment's number of operations", static_cast<double>(options.rand_operations), 0,
              16);
  check_range("RandAugment's magnitude", static_cast<double>(options.rand_magnitude), 0, 30);
  check_range("the probability of erasing", options.erase, 0, 1);
  check_range("MixUp's alpha", options.mix.mixup, 0, 1000);
  check_range("CutMix's alpha", options.mix.cutmix, 0, 1000);
  check_range("the probability of mixing", options.mix.probability, 0, 1);
  check_range("label smoothing", options.label_smoothing, 0, 1);
}

MixedBatch augment(const at::Tensor& images, const at::Tensor& labels, std::int64_t classes,
                   const Normalisation& normalisation, const AugmentOptions& options,
                   const BatchKey& key) {
  at::Tensor bytes = random_crop_and_flip(images, options.crop_padding, options.flip, key);
  if (options.policy == Policy::auto_augment) bytes = auto_augment(bytes, key);
  if (options.policy == Policy::rand_augment) {
    bytes = rand_augment(bytes, options.rand_operations, options.rand_magnitude, key);
  }
  const at::Tensor floats = random_erase(normalise(bytes, normalisation), options.erase, key);
  return mix(floats, smooth_targets(labels, classes, options.label_smoothing), options.mix, key);
}

}  // namespace sape2::data
