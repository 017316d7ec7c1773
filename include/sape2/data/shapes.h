#pragma once

#include "sape2/data/dataset.h"

#include <array>
#include <cstdint>
#include <optional>

namespace sape2::data {

/// What the generated data set `shapes` is made of; docs/shapes.md shows it. Lengths are in 1/32 of
/// the image's side, that is, in pixels at the default size. Every image is a pure function of
/// (seed, split, index) and these values, in whole-number arithmetic: the same on every machine. A
/// value that changes leaves all else about the image as it was, which is what probes need.
struct ShapesOptions {
  Split split = Split::train;
  std::int64_t count = 0;  ///< 0: 4,000 for training, 1,000 for tests
  std::uint64_t seed = 0;
  std::int64_t image_size = 32;  ///< pixels; the same scenes at another resolution
  std::int64_t min_object = 14;  ///< the object's size is drawn from min_object … max_object
  std::int64_t max_object = 26;
  std::int64_t margin = 1;  ///< kept free between the object and the border if possible
  std::optional<std::array<std::int64_t, 2>> centre;  ///< (x, y) of the object instead of a draw
  std::int64_t shift_x = 0;  ///< moves object and background together to the right …
  std::int64_t shift_y = 0;  ///< … and down; the background goes on without a seam
  std::int64_t noise = 12;   ///< largest deviation of a pixel's value
};

struct Shapes {
  Dataset dataset;
  at::Tensor masks;  ///< [N, H, W] uint8: 1 where the object is, 0 on the background
};

Shapes make_shapes(const ShapesOptions& options);

/// The same images with their masks instead of their classes: background and object.
Dataset with_masks(Shapes shapes);

}  // namespace sape2::data
