// Makes docs/pictures/shapes.png and docs/pictures/augmentations.png.
// usage: contact_sheet FOLDER
#include "sape2/base/error.h"
#include "sape2/data/augment.h"
#include "sape2/data/image.h"
#include "sape2/data/shapes.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>

namespace {

using namespace sape2::data;
using Rows = std::vector<at::Tensor>;  // each [n, 3, H, W] uint8

constexpr std::int64_t kZoom = 2;
constexpr std::int64_t kGap = 4;

Image sheet(const Rows& rows) {
  const std::int64_t side = rows.front().size(2) * kZoom + kGap;
  const std::int64_t height = static_cast<std::int64_t>(rows.size()) * side + kGap;
  const std::int64_t width = rows.front().size(0) * side + kGap;
  at::Tensor canvas = at::full({height, width, 3}, 255, at::kByte);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const at::Tensor images =
        rows[row].repeat_interleave(kZoom, 2).repeat_interleave(kZoom, 3).permute({0, 2, 3, 1});
    for (std::int64_t column = 0; column < images.size(0); ++column) {
      canvas.narrow(0, kGap + static_cast<std::int64_t>(row) * side, side - kGap)
          .narrow(1, kGap + column * side, side - kGap)
          .copy_(images[column]);
    }
  }
  const auto* bytes = canvas.data_ptr<std::uint8_t>();
  return {height, width, 3, {bytes, bytes + canvas.numel()}};
}

at::Tensor to_bytes(const at::Tensor& normalised, const Normalisation& normalisation) {
  const at::Tensor mean = at::tensor(normalisation.mean, at::kFloat).view({1, 3, 1, 1});
  const at::Tensor deviation = at::tensor(normalisation.deviation, at::kFloat).view({1, 3, 1, 1});
  return ((normalised * deviation + mean) * 255).round().clamp(0, 255).to(at::kByte);
}

// Classes side by side; the last row shows the masks of the one before.
Image shapes_sheet() {
  constexpr std::int64_t kSamples = 5, kClasses = 10;
  const Shapes shapes = make_shapes({.count = kSamples * kClasses});
  Rows rows;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    rows.push_back(shapes.dataset.images.narrow(0, i * kClasses, kClasses));
  }
  rows.push_back(shapes.masks.narrow(0, (kSamples - 1) * kClasses, kClasses)
                     .mul(255)
                     .unsqueeze(1)
                     .expand({-1, 3, -1, -1}));
  return sheet(rows);
}

// The originals, then one augmentation a row.
Image augmentations_sheet() {
  const Dataset data = make_shapes({.count = 12, .seed = 1, .noise = 0}).dataset;
  const at::Tensor& images = data.images;
  const BatchKey key{.seed = 3};
  const at::Tensor floats = normalise(images, data.normalisation);
  const at::Tensor targets = smooth_targets(data.labels, data.classes(), 0);
  const auto mixed = [&](const MixOptions& options) {
    return to_bytes(mix(floats, targets, options, key).images, data.normalisation);
  };
  const std::vector<ImageOpCall> calls{
      {ImageOp::shear_x, 0.3},  {ImageOp::shear_y, 0.3},    {ImageOp::translate_x, 10},
      {ImageOp::rotate, 30},    {ImageOp::brightness, 1.6}, {ImageOp::color, 0.1},
      {ImageOp::contrast, 1.8}, {ImageOp::sharpness, 1.9},  {ImageOp::posterize, 4},
      {ImageOp::solarize, 128}, {ImageOp::equalize, 0},     {ImageOp::invert, 0}};
  return sheet({images, random_crop_and_flip(images, 4, 0.5, key), apply_image_ops(images, calls),
                auto_augment(images, key), rand_augment(images, 2, 9, key),
                to_bytes(random_erase(floats, 1, key), data.normalisation), mixed({.mixup = 0.8}),
                mixed({.cutmix = 1})});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: contact_sheet FOLDER\n");
    return 2;
  }
  try {
    const std::filesystem::path folder = arguments[1];
    write_png(folder / "shapes.png", shapes_sheet());
    write_png(folder / "augmentations.png", augmentations_sheet());
  } catch (const sape2::Error& error) {
    std::fprintf(stderr, "contact_sheet: %s\n", error.what());
    return 1;
  }
}
