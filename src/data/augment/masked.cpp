#include "sape2/data/augment.h"
#include "sape2/data/random.h"

#include "data/augment/upload.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

// One view of an image and its mask: both are read at the same places, in whole numbers, so that
// every device gives the same bytes.
namespace sape2::data {
namespace {

constexpr std::int64_t kPlaceBits = 16;  // of places between pixels
constexpr std::int64_t kPlaceOne = std::int64_t{1} << kPlaceBits;
constexpr std::int64_t kOutsideColour = 128;

// Where the rows, or the columns, of all views lie in their images.
struct Lines {
  std::vector<std::int64_t> nearest, low, high;
  std::vector<std::int64_t> share;    // of `high`, in 256ths
  std::vector<std::int64_t> outside;  // 1: beyond the image

  // `place`: of the middle of an output pixel, in kPlaceOne of a pixel.
  void add(std::int64_t place, std::int64_t length) {
    const std::int64_t last = length - 1, between = place - kPlaceOne / 2;
    const std::int64_t below = between >> kPlaceBits;
    nearest.push_back(std::clamp<std::int64_t>(place >> kPlaceBits, 0, last));
    low.push_back(std::clamp<std::int64_t>(below, 0, last));
    high.push_back(std::clamp<std::int64_t>(below + 1, 0, last));
    share.push_back((between & (kPlaceOne - 1)) >> (kPlaceBits - 8));
    outside.push_back(place < 0 || place >= length << kPlaceBits);
  }
};

// The first pixel of the window in the scaled image: all of the smaller one is in view, or only
// the larger one is, give or take the padding.
std::int64_t draw_offset(Draws& draws, std::int64_t length, double scale, std::int64_t padding) {
  const std::int64_t rest = std::llround(scale * static_cast<double>(length)) - length;
  return draws.between(std::min<std::int64_t>(0, rest) - padding,
                       std::max<std::int64_t>(0, rest) + padding);
}

void add_view(Lines& lines, std::int64_t length, std::int64_t offset, double scale, bool mirrored) {
  const std::int64_t step = std::llround(static_cast<double>(kPlaceOne) / scale);
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t at = (mirrored ? length - 1 - i : i) + offset;
    lines.add(((2 * at + 1) * step) >> 1, length);
  }
}

struct Views {
  Lines rows, columns;
};

Views draw_views(std::int64_t batch, std::int64_t height, std::int64_t width,
                 const AugmentOptions& options, const BatchKey& key) {
  Views views;
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto draws = [&](Purpose purpose) {
      return Draws(key.seed, key.epoch, key.image(i), purpose);
    };
    const double scale = std::exp(
        draws(Purpose::scale).uniform(std::log(options.scale_low), std::log(options.scale_high)));
    Draws crop = draws(Purpose::crop);
    const std::int64_t top = draw_offset(crop, height, scale, options.crop_padding);
    const std::int64_t left = draw_offset(crop, width, scale, options.crop_padding);
    add_view(views.rows, height, top, scale, false);
    add_view(views.columns, width, left, scale, draws(Purpose::flip).chance(options.flip));
  }
  return views;
}

// Reads images `[B, C, H, W]` between their pixels and masks `[B, H, W]` at the nearest one.
class Viewer {
 public:
  Viewer(const Views& views, const at::Tensor& images)
      : views_(views),
        batch_(images.size(0)),
        height_(images.size(2)),
        width_(images.size(3)),
        device_(images.device()) {}

  at::Tensor image(const at::Tensor& images) const {
    const at::Tensor flat = images.flatten(2);
    const at::Tensor down = rows(views_.rows.share).unsqueeze(1).to(at::kInt);
    const at::Tensor across = columns(views_.columns.share).unsqueeze(1).to(at::kInt);
    const auto line = [&](const std::vector<std::int64_t>& row) {
      const auto pixels = [&](const std::vector<std::int64_t>& column) {
        return take_pixels(flat, index(row, column)).view(images.sizes()).to(at::kInt);
      };
      return pixels(views_.columns.low) * (256 - across) + pixels(views_.columns.high) * across;
    };
    const at::Tensor sum = line(views_.rows.low) * (256 - down) + line(views_.rows.high) * down;
    return (sum + (1 << 15))
        .bitwise_right_shift(16)
        .to(at::kByte)
        .masked_fill(outside().unsqueeze(1), kOutsideColour);
  }

  at::Tensor mask(const at::Tensor& masks) const {
    const at::Tensor taken = take_pixels(masks.flatten(1).unsqueeze(1),
                                         index(views_.rows.nearest, views_.columns.nearest));
    return taken.view(masks.sizes()).masked_fill(outside(), kNotCounted);
  }

 private:
  at::Tensor rows(const std::vector<std::int64_t>& values) const {
    return upload(values, {batch_, height_, 1}, device_);
  }
  at::Tensor columns(const std::vector<std::int64_t>& values) const {
    return upload(values, {batch_, 1, width_}, device_);
  }
  at::Tensor index(const std::vector<std::int64_t>& row,
                   const std::vector<std::int64_t>& column) const {
    return (rows(row) * width_ + columns(column)).flatten(1);
  }
  at::Tensor outside() const {
    return rows(views_.rows.outside).logical_or(columns(views_.columns.outside));
  }

  const Views& views_;
  std::int64_t batch_, height_, width_;
  at::Device device_;
};

at::Tensor jitter_colours(const at::Tensor& images, double strength, const BatchKey& key) {
  std::vector<ImageOpCall> brightness, contrast, colour;
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    Draws draws(key.seed, key.epoch, key.image(i), Purpose::colour);
    const auto factor = [&] { return draws.uniform(1 - strength, 1 + strength); };
    brightness.push_back({ImageOp::brightness, factor()});
    contrast.push_back({ImageOp::contrast, factor()});
    colour.push_back({ImageOp::color, factor()});
  }
  return apply_image_ops(apply_image_ops(apply_image_ops(images, brightness), contrast), colour);
}

}  // namespace

MaskedBatch augment_with_masks(const at::Tensor& images, const at::Tensor& masks,
                               const Normalisation& normalisation, const AugmentOptions& options,
                               const BatchKey& key) {
  at::Tensor bytes = images, seen = masks;
  const bool moves = options.crop_padding > 0 || options.flip > 0 || options.scale_low != 1 ||
                     options.scale_high != 1;
  if (moves) {
    const Views views = draw_views(images.size(0), images.size(2), images.size(3), options, key);
    const Viewer viewer(views, images);
    bytes = viewer.image(images);
    seen = viewer.mask(masks);
  }
  if (options.colour_jitter > 0) bytes = jitter_colours(bytes, options.colour_jitter, key);
  return {normalise(bytes, normalisation), seen};
}

}  // namespace sape2::data
