#include "sape2/data/augment.h"

#include "sape2/base/error.h"

#include "data/augment/upload.h"

#include <fmt/format.h>

#include <array>

namespace sape2::data {
namespace {

void check_range(const char* what, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    throw Error(fmt::format("{} is {}, expected {} … {}", what, value, low, high));
  }
}

}  // namespace

at::Tensor normalise(const at::Tensor& images, const Normalisation& normalisation) {
  const std::int64_t channels = images.size(1);
  std::vector<float> offsets, factors;
  for (const auto& [offset, factor] : byte_scales(normalisation, channels)) {
    offsets.push_back(offset);
    factors.push_back(factor);
  }
  const std::array<std::int64_t, 4> shape{1, channels, 1, 1};
  return images.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true)
      .sub_(upload(offsets, shape, images.device()))
      .mul_(upload(factors, shape, images.device()));
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
  check_range("the smallest scale", options.scale_low, 0.1, 10);
  check_range("the largest scale", options.scale_high, options.scale_low, 10);
  check_range("the strength of colour jitter", options.colour_jitter, 0, 1);
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
