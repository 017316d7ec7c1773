#pragma once

#include "sape2/data/augment.h"

#include "data/augment/upload.h"

#include <array>
#include <cstdint>
#include <vector>

/// What is drawn for a batch, apart from what is done with it: the same on every device.
namespace sape2::data {

/// Where the window of an image lies in the padded image, and whether it is mirrored.
struct CropDraw {
  std::int64_t top = 0, left = 0;
  bool flip = false;
};
CropDraw draw_crop(std::int64_t padding, double flip_probability, const BatchKey& key,
                   std::int64_t image);

/// Height and width.
struct ImageSize {
  std::int64_t height = 0, width = 0;
};

/// One list of calls, an image each, for each operation in turn.
using OperationDraws = std::vector<std::vector<ImageOpCall>>;
OperationDraws draw_auto_augment(std::int64_t batch, ImageSize size, const BatchKey& key);
OperationDraws draw_rand_augment(std::int64_t batch, ImageSize size, std::int64_t operations,
                                 std::int64_t magnitude, const BatchKey& key);

/// An operation's strength in whole numbers, as kernels/cuda/training/augment.cu lists them.
std::array<std::int64_t, 6> whole_numbers(const ImageOpCall& call, ImageSize size);

Boxes draw_erased(std::int64_t batch, ImageSize size, double probability, const BatchKey& key);

/// What each image of a batch keeps: a share of every pixel (MixUp), or all outside of a box
/// (CutMix).
struct MixDraws {
  std::vector<float> of_pixels;  ///< outside of the box
  std::vector<float> of_targets;
  Boxes boxes;  ///< taken from the partner whole
  std::vector<std::int64_t> partners;
};
bool mixes(const MixOptions& options);

/// The places begin … end − 1 of a batch of so many images, and behind them those of the images
/// that they are mixed with: what has to be made for that part of the batch.
std::vector<std::int64_t> places_of_part(std::int64_t begin, std::int64_t end, std::int64_t batch,
                                         const MixOptions& options, const BatchKey& key);

/// With places_of_part(), images behind the part itself are drawn too, but mixed with nothing.
MixDraws draw_mix(std::int64_t batch, ImageSize size, const MixOptions& options,
                  const BatchKey& key);

}  // namespace sape2::data
