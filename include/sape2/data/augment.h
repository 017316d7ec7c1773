#pragma once

#include "sape2/data/dataset.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// Augmentation of whole batches. Everything random is drawn on the host from a counter-based
/// generator and everything done to pixels is LibTorch operations on the tensor's own device, in
/// whole numbers as long as pixels are bytes: one code for CPU and GPU, and the same batches on
/// both. docs/augmentations.md shows each of them.
namespace sape2::data {

/// Names the draws of a batch: the image at place i of it uses those of (seed, epoch, first + i).
struct BatchKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t first = 0;
  /// Where the images stand in the batch if only some of it are made; empty: 0, 1, …
  std::vector<std::int64_t> places = {};
  std::int64_t batch = 0;  ///< images of the whole batch, with `places`

  /// The number of image i's draws.
  std::uint64_t image(std::int64_t i) const {
    return first +
           static_cast<std::uint64_t>(places.empty() ? i : places[static_cast<std::size_t>(i)]);
  }
};

/// Pads with `padding` black pixels on each side, cuts out a window of the old size at a random
/// place, and mirrors it left to right with the given probability. Images: [B, C, H, W] uint8.
at::Tensor random_crop_and_flip(const at::Tensor& images, std::int64_t padding,
                                double flip_probability, const BatchKey& key);

/// One operation of AutoAugment and RandAugment.
enum class ImageOp {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize,
  invert,
};

/// An operation and its strength: the slope of a shear, pixels of a shift, degrees
/// counter-clockwise, the factor of an enhancement (1: no change), bits that posterize keeps, or
/// solarize's threshold.
struct ImageOpCall {
  ImageOp op = ImageOp::identity;
  double value = 0;
};

/// Applies calls[i] to images[i]. Pixels a geometric operation finds outside become grey (128).
at::Tensor apply_image_ops(const at::Tensor& images, const std::vector<ImageOpCall>& calls);

/// AutoAugment's policy for CIFAR-10 (Cubuk et al., 2018): 25 pairs of operations, one drawn for
/// each image.
at::Tensor auto_augment(const at::Tensor& images, const BatchKey& key);

/// RandAugment (Cubuk et al., 2019): `operations` draws from 14 operations, each of strength
/// `magnitude` out of 30.
at::Tensor rand_augment(const at::Tensor& images, std::int64_t operations, std::int64_t magnitude,
                        const BatchKey& key);

/// Bytes `[B, C, H, W]` to floats: (x / 255 − mean) / deviation, computed as ByteScale says.
at::Tensor normalise(const at::Tensor& images, const Normalisation& normalisation);

/// Random erasing (Zhong et al., 2017): with the given probability a box of 2 to 33 % of the image
/// and of proportions 0.3 to 3.3 becomes zero, which after normalise() is the mean colour.
at::Tensor random_erase(const at::Tensor& images, double probability, const BatchKey& key);

/// Class indices as probabilities: 1 - smoothing on the class, the rest spread over all classes.
at::Tensor smooth_targets(const at::Tensor& labels, std::int64_t classes, double smoothing);

struct MixOptions {
  double mixup = 0;        ///< alpha of MixUp's Beta distribution; 0: no MixUp
  double cutmix = 0;       ///< alpha of CutMix's; 0: none. With both, half of the mixed images each
  double probability = 1;  ///< share of images that are mixed at all
};

struct MixedBatch {
  at::Tensor images;   ///< [B, C, H, W] float32
  at::Tensor targets;  ///< [B, classes] float32, each row sums to one
};

/// MixUp (Zhang et al., 2017) and CutMix (Yun et al., 2019): every image draws its own share and
/// box and is mixed with another image of the batch; targets are mixed by each one's pixels.
MixedBatch mix(const at::Tensor& images, const at::Tensor& targets, const MixOptions& options,
               const BatchKey& key);

enum class Policy { none, auto_augment, rand_augment };

/// A whole recipe. The default leaves images as they are, apart from normalisation.
struct AugmentOptions {
  std::int64_t crop_padding = 0;
  double flip = 0;
  Policy policy = Policy::none;
  std::int64_t rand_operations = 2;
  std::int64_t rand_magnitude = 9;
  double erase = 0;
  MixOptions mix;
  double label_smoothing = 0;
  double scale_low = 1;      ///< with masks: a view is scaled by a factor from here …
  double scale_high = 1;     ///< … to here, then cut or filled to the old size
  double colour_jitter = 0;  ///< with masks: brightness, contrast, colour times 1 ± up to this
};

/// Throws a sentence for a value that makes no sense.
void check_augment_options(const AugmentOptions& options);

/// Crop and flip, policy, normalise, erase, mix, in this order.
MixedBatch augment(const at::Tensor& images, const at::Tensor& labels, std::int64_t classes,
                   const Normalisation& normalisation, const AugmentOptions& options,
                   const BatchKey& key);

struct MaskedBatch {
  at::Tensor images;  ///< [B, C, H, W] float32
  at::Tensor masks;   ///< [B, H, W] uint8
};

/// For images with masks `[B, H, W]` uint8: scales, cuts out a window (up to `crop_padding`
/// pixels beyond the image), mirrors, jitters colours, normalises. Image and mask get the same
/// view: the image between its pixels (bilinear), the mask at the nearest one. What a view shows
/// beyond the image is grey, and not counted in the mask.
MaskedBatch augment_with_masks(const at::Tensor& images, const at::Tensor& masks,
                               const Normalisation& normalisation, const AugmentOptions& options,
                               const BatchKey& key);

}  // namespace sape2::data
