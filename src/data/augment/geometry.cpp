#include "sape2/data/augment.h"
#include "sape2/data/random.h"

#include "data/augment/draws.h"

#include <ATen/ATen.h>

namespace sape2::data {

CropDraw draw_crop(std::int64_t padding, double flip_probability, const BatchKey& key,
                   std::int64_t image) {
  Draws crop(key.seed, key.epoch, key.image(image), Purpose::crop);
  const std::int64_t top = crop.between(0, 2 * padding), left = crop.between(0, 2 * padding);
  return {top, left,
          Draws(key.seed, key.epoch, key.image(image), Purpose::flip).chance(flip_probability)};
}

at::Tensor random_crop_and_flip(const at::Tensor& images, std::int64_t padding,
                                double flip_probability, const BatchKey& key) {
  if (padding == 0 && flip_probability == 0) return images;
  const std::int64_t batch = images.size(0), height = images.size(2), width = images.size(3);
  const std::int64_t padded_width = width + 2 * padding;
  // Where each output row and column lies in the padded image.
  std::vector<std::int64_t> rows, columns;
  rows.reserve(batch * height);
  columns.reserve(batch * width);
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto [top, left, flip] = draw_crop(padding, flip_probability, key, i);
    for (std::int64_t y = 0; y < height; ++y) rows.push_back((top + y) * padded_width);
    for (std::int64_t x = 0; x < width; ++x) {
      columns.push_back(left + (flip ? width - 1 - x : x));
    }
  }
  const at::Device device = images.device();
  const at::Tensor index =
      (upload(rows, {batch, height, 1}, device) + upload(columns, {batch, 1, width}, device))
          .view({batch, height * width});
  const at::Tensor padded =
      padding == 0 ? images : at::constant_pad_nd(images, {padding, padding, padding, padding}, 0);
  return take_pixels(padded.flatten(2), index).view(images.sizes());
}

at::Tensor Boxes::mask(std::int64_t height, std::int64_t width, at::Device device) const {
  const auto batch = static_cast<std::int64_t>(top.size());
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor y = at::arange(height, options).view({1, 1, height, 1});
  const at::Tensor x = at::arange(width, options).view({1, 1, 1, width});
  const at::Tensor in_rows =
      y.ge(upload(top, {batch, 1, 1, 1}, device)) & y.lt(upload(bottom, {batch, 1, 1, 1}, device));
  const at::Tensor in_columns =
      x.ge(upload(left, {batch, 1, 1, 1}, device)) & x.lt(upload(right, {batch, 1, 1, 1}, device));
  return in_rows & in_columns;
}

}  // namespace sape2::data
