#include "sape2/train/loader_source.h"

#include "sape2/base/error.h"
#include "sape2/train/device.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace sape2::train {
namespace {

constexpr double kFlipProbability = 0.5;

data::Policy policy_of(const Recipe& recipe) {
  if (recipe.auto_augment) return data::Policy::auto_augment;
  return recipe.rand_augment_operations > 0 ? data::Policy::rand_augment : data::Policy::none;
}

data::LoaderOptions in_part(data::LoaderOptions options, data::BatchPart part) {
  options.part = part;
  return options;
}

}  // namespace

data::LoaderOptions loader_options(const Recipe& recipe, uint64_t seed, int64_t images,
                                   c10::Device device) {
  data::LoaderOptions options;
  options.batch_size = std::min(recipe.batch_size, images);
  options.seed = seed;
  options.drop_last = true;
  options.passes = recipe.passes;
  options.repeats = recipe.repeats;
  options.device = device;
  options.augment.crop_padding = recipe.crop_padding;
  options.augment.flip = recipe.flip ? kFlipProbability : 0;
  options.augment.policy = policy_of(recipe);
  options.augment.rand_operations = std::max<int64_t>(1, recipe.rand_augment_operations);
  options.augment.rand_magnitude = recipe.rand_augment_magnitude;
  options.augment.erase = recipe.erase_probability;
  options.augment.mix = {.mixup = recipe.mixup_alpha,
                         .cutmix = recipe.cutmix_alpha,
                         .probability = recipe.mix_probability};
  options.augment.label_smoothing = recipe.label_smoothing;
  options.augment.scale_low = recipe.scale_low;
  options.augment.scale_high = recipe.scale_high;
  options.augment.colour_jitter = recipe.colour_jitter;
  return options;
}

LoaderSource::LoaderSource(data::Dataset images, const RunConfig& config, data::BatchPart part)
    : images_per_step_(std::min(config.recipe.batch_size, images.size())),
      part_(part),
      loader_(images, in_part(loader_options(config.recipe, config.seed, images.size(),
                                             device_named(config.device)),
                              part)) {}

Batch LoaderSource::batch(int64_t epoch, int64_t step) {
  if (epoch != epoch_ || step != next_step_) loader_.start(epoch, step);
  auto batch = loader_.next();
  if (!batch) throw Error(fmt::format("there is no step {} in an epoch", step));
  epoch_ = epoch;
  next_step_ = step + 1;
  return {.images = std::move(batch->images),
          .targets = std::move(batch->targets),
          .begin = part_.begin(images_per_step_),
          .whole = images_per_step_};
}

}  // namespace sape2::train
