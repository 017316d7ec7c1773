#include "sape2/data/augment.h"
#include "sape2/data/random.h"

#include "data/augment/draws.h"

#include <array>
#include <cmath>

namespace sape2::data {
namespace {

struct Step {
  ImageOp op;
  double probability;
  int level;  // 0 … 9
};

using enum ImageOp;

// The 25 sub-policies found for CIFAR-10.
constexpr std::array<std::array<Step, 2>, 25> kCifar10Policy{{
    {{{invert, 0.1, 0}, {contrast, 0.2, 6}}},
    {{{rotate, 0.7, 2}, {translate_x, 0.3, 9}}},
    {{{sharpness, 0.8, 1}, {sharpness, 0.9, 3}}},
    {{{shear_y, 0.5, 8}, {translate_y, 0.7, 9}}},
    {{{auto_contrast, 0.5, 0}, {equalize, 0.9, 0}}},
    {{{shear_y, 0.2, 7}, {posterize, 0.3, 7}}},
    {{{color, 0.4, 3}, {brightness, 0.6, 7}}},
    {{{sharpness, 0.3, 9}, {brightness, 0.7, 9}}},
    {{{equalize, 0.6, 0}, {equalize, 0.5, 0}}},
    {{{contrast, 0.6, 7}, {sharpness, 0.6, 5}}},
    {{{color, 0.7, 7}, {translate_x, 0.5, 8}}},
    {{{equalize, 0.3, 0}, {auto_contrast, 0.4, 0}}},
    {{{translate_y, 0.4, 3}, {sharpness, 0.2, 6}}},
    {{{brightness, 0.9, 6}, {color, 0.2, 8}}},
    {{{solarize, 0.5, 2}, {invert, 0.0, 0}}},
    {{{equalize, 0.2, 0}, {auto_contrast, 0.6, 0}}},
    {{{equalize, 0.2, 0}, {equalize, 0.6, 0}}},
    {{{color, 0.9, 9}, {equalize, 0.6, 0}}},
    {{{auto_contrast, 0.8, 0}, {solarize, 0.2, 8}}},
    {{{brightness, 0.1, 3}, {color, 0.7, 0}}},
    {{{solarize, 0.4, 5}, {auto_contrast, 0.9, 0}}},
    {{{translate_y, 0.9, 9}, {translate_y, 0.7, 9}}},
    {{{auto_contrast, 0.9, 0}, {solarize, 0.8, 3}}},
    {{{equalize, 0.8, 0}, {invert, 0.1, 0}}},
    {{{translate_y, 0.7, 9}, {auto_contrast, 0.9, 0}}},
}};
constexpr double kAutoAugmentLevels = 9;

constexpr std::array<ImageOp, 14> kRandAugmentOps{
    identity, shear_x,  shear_y,   translate_x, translate_y, rotate,        brightness,
    color,    contrast, sharpness, posterize,   solarize,    auto_contrast, equalize};
constexpr double kRandAugmentLevels = 30;

// The strength of an operation, from none (0) to the strongest in the papers (1).
double value_of(ImageOp op, double strength, bool negative, ImageSize size) {
  const double sign = negative ? -1 : 1;
  const auto shift = [&](std::int64_t length) {
    return sign * std::trunc(150.0 / 331 * static_cast<double>(length) * strength);
  };
  switch (op) {
    case shear_x:
    case shear_y:
      return sign * 0.3 * strength;
    case translate_x:
      return shift(size.width);
    case translate_y:
      return shift(size.height);
    case rotate:
      return sign * 30 * strength;
    case brightness:
    case color:
    case contrast:
    case sharpness:
      return 1 + sign * 0.9 * strength;
    case posterize:
      return 8 - std::round(4 * strength);
    case solarize:
      return 255 * (1 - strength);
    default:
      return 0;
  }
}

}  // namespace

OperationDraws draw_auto_augment(std::int64_t batch, ImageSize size, const BatchKey& key) {
  const auto count = static_cast<std::size_t>(batch);
  OperationDraws calls(2, std::vector<ImageOpCall>(count));
  for (std::size_t i = 0; i < count; ++i) {
    Draws draws(key.seed, key.epoch, key.image(static_cast<std::int64_t>(i)),
                Purpose::auto_augment);
    const auto& policy = kCifar10Policy[draws.below(kCifar10Policy.size())];
    for (std::size_t k = 0; k < policy.size(); ++k) {
      const bool used = draws.chance(policy[k].probability), negative = draws.chance(0.5);
      if (!used) continue;
      calls[k][i] = {policy[k].op,
                     value_of(policy[k].op, policy[k].level / kAutoAugmentLevels, negative, size)};
    }
  }
  return calls;
}

OperationDraws draw_rand_augment(std::int64_t batch, ImageSize size, std::int64_t operations,
                                 std::int64_t magnitude, const BatchKey& key) {
  const auto count = static_cast<std::size_t>(batch);
  OperationDraws calls(static_cast<std::size_t>(operations), std::vector<ImageOpCall>(count));
  for (std::size_t i = 0; i < count; ++i) {
    Draws draws(key.seed, key.epoch, key.image(static_cast<std::int64_t>(i)),
                Purpose::rand_augment);
    for (auto& call : calls) {
      const ImageOp op = kRandAugmentOps[draws.below(kRandAugmentOps.size())];
      const bool negative = draws.chance(0.5);
      call[i] = {op,
                 value_of(op, static_cast<double>(magnitude) / kRandAugmentLevels, negative, size)};
    }
  }
  return calls;
}

namespace {

at::Tensor applied(const OperationDraws& calls, at::Tensor images) {
  for (const auto& call : calls) images = apply_image_ops(images, call);
  return images;
}

}  // namespace

at::Tensor auto_augment(const at::Tensor& images, const BatchKey& key) {
  return applied(draw_auto_augment(images.size(0), {images.size(2), images.size(3)}, key), images);
}

at::Tensor rand_augment(const at::Tensor& images, std::int64_t operations, std::int64_t magnitude,
                        const BatchKey& key) {
  const ImageSize size{images.size(2), images.size(3)};
  return applied(draw_rand_augment(images.size(0), size, operations, magnitude, key), images);
}

}  // namespace sape2::data
