#include "data/augment/plan.h"

#include "data/augment/draws.h"

#include <algorithm>

namespace sape2::data {
namespace {

using Operation = kernels::cuda::PlannedOperation;

Operation::Kind kind_of(ImageOp op) {
  switch (op) {
    case ImageOp::shear_x:
    case ImageOp::shear_y:
    case ImageOp::translate_x:
    case ImageOp::translate_y:
    case ImageOp::rotate:
      return Operation::move;
    case ImageOp::brightness:
      return Operation::brightness;
    case ImageOp::color:
      return Operation::color;
    case ImageOp::contrast:
      return Operation::contrast;
    case ImageOp::sharpness:
      return Operation::sharpness;
    case ImageOp::posterize:
      return Operation::posterize;
    case ImageOp::solarize:
    case ImageOp::invert:
      return Operation::solarize;
    case ImageOp::auto_contrast:
      return Operation::auto_contrast;
    case ImageOp::equalize:
      return Operation::equalize;
    default:
      return Operation::none;
  }
}

Operation planned(const ImageOpCall& call, ImageSize size) {
  Operation operation;
  operation.kind = kind_of(call.op);
  const auto numbers = whole_numbers(call, size);
  std::ranges::transform(numbers, operation.value,
                         [](std::int64_t number) { return static_cast<std::int32_t>(number); });
  return operation;
}

void set_box(std::int32_t (&box)[4], const Boxes& boxes, std::size_t image) {
  box[0] = static_cast<std::int32_t>(boxes.top[image]);
  box[1] = static_cast<std::int32_t>(boxes.left[image]);
  box[2] = static_cast<std::int32_t>(boxes.bottom[image]);
  box[3] = static_cast<std::int32_t>(boxes.right[image]);
}

OperationDraws draw_operations(std::int64_t batch, ImageSize size, const AugmentOptions& options,
                               const BatchKey& key) {
  switch (options.policy) {
    case Policy::auto_augment:
      return draw_auto_augment(batch, size, key);
    case Policy::rand_augment:
      return draw_rand_augment(batch, size, options.rand_operations, options.rand_magnitude, key);
    default:
      return {};
  }
}

}  // namespace

ops::AugmentPlan plan_batch(const std::vector<std::int64_t>& sources, std::int64_t height,
                            std::int64_t width, const AugmentOptions& options,
                            const BatchKey& key) {
  const auto batch = static_cast<std::int64_t>(sources.size());
  const ImageSize size{height, width};
  ops::AugmentPlan plan;
  plan.images.resize(sources.size());
  plan.mixes = mixes(options.mix) && batch > 0;
  const bool moves = options.crop_padding > 0 || options.flip > 0;
  const Boxes erased = options.erase > 0 ? draw_erased(batch, size, options.erase, key) : Boxes();
  const MixDraws mix = plan.mixes ? draw_mix(batch, size, options.mix, key) : MixDraws();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto& image = plan.images[i];
    image.source = sources[i];
    if (moves) {
      const CropDraw crop =
          draw_crop(options.crop_padding, options.flip, key, static_cast<std::int64_t>(i));
      image.top = static_cast<std::int32_t>(crop.top);
      image.left = static_cast<std::int32_t>(crop.left);
      image.flip = crop.flip;
    }
    if (options.erase > 0) set_box(image.erased, erased, i);
    if (!plan.mixes) continue;
    image.partner = static_cast<std::int32_t>(mix.partners[i]);
    image.share_of_pixels = mix.of_pixels[i];
    image.share_of_targets = mix.of_targets[i];
    set_box(image.box, mix.boxes, i);
  }
  const OperationDraws calls = draw_operations(batch, size, options, key);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    for (const auto& call : calls) plan.calls.push_back(planned(call[i], size));
  }
  return plan;
}

ops::AugmentSettings augment_settings(std::int64_t channels, std::int64_t classes,
                                      const Normalisation& normalisation,
                                      const AugmentOptions& options) {
  ops::AugmentSettings settings;
  settings.classes = classes;
  settings.padding = options.crop_padding;
  const double rest = options.label_smoothing / static_cast<double>(classes);
  settings.target = static_cast<float>(1 - options.label_smoothing + rest);
  settings.other_target = static_cast<float>(rest);
  const std::vector<ByteScale> scales = byte_scales(normalisation, channels);
  for (std::size_t c = 0; c < scales.size() && c < settings.mean.size(); ++c) {
    settings.mean[c] = scales[c].offset;
    settings.factor[c] = scales[c].factor;
  }
  return settings;
}

}  // namespace sape2::data
