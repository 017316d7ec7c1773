#include "sape2/base/error.h"
#include "sape2/data/augment.h"

#include "data/augment/draws.h"
#include "data/grey.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

// Each function takes the images of one kind of operation, [n, C, H, W] uint8, and gives new ones.
// Sums and products are whole numbers: every device gives the same bytes.
namespace sape2::data {
namespace {

using Calls = std::vector<ImageOpCall>;

constexpr std::int64_t kFill = 128;
constexpr std::int64_t kFixedBits = 16;  // of fixed-point numbers
constexpr double kFixedOne = 1 << kFixedBits;

at::Tensor to_bytes(const at::Tensor& values) {
  return values.clamp(0, 255).to(at::kByte);
}

// One whole number a call, as [n, 1, 1, 1] to be spread over the image.
at::Tensor per_image(const Calls& calls, at::Device device, at::ScalarType type) {
  std::vector<std::int64_t> values;
  for (const ImageOpCall& call : calls) values.push_back(whole_numbers(call, {})[0]);
  return upload(values, {static_cast<std::int64_t>(calls.size()), 1, 1, 1}, device).to(type);
}

// Where the middle of an output pixel comes from: x = a·(column + ½) + b·(row + ½) + c, y alike.
using Affine = std::array<double, 6>;

Affine affine_of(const ImageOpCall& call, double height, double width) {
  switch (call.op) {
    case ImageOp::shear_x:
      return {1, call.value, 0, 0, 1, 0};
    case ImageOp::shear_y:
      return {1, 0, 0, call.value, 1, 0};
    case ImageOp::translate_x:
      return {1, 0, call.value, 0, 1, 0};
    case ImageOp::translate_y:
      return {1, 0, 0, 0, 1, call.value};
    default: {
      const double angle = call.value * std::numbers::pi / 180;
      const double cosine = std::cos(angle), sine = std::sin(angle);
      const double x = width / 2, y = height / 2;
      return {cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y};
    }
  }
}

at::Tensor move_pixels(const at::Tensor& images, const Calls& calls) {
  const std::int64_t count = images.size(0), height = images.size(2), width = images.size(3);
  std::array<std::vector<std::int64_t>, 6> coefficients;
  for (const ImageOpCall& call : calls) {
    const auto numbers = whole_numbers(call, {height, width});
    for (std::size_t k = 0; k < numbers.size(); ++k) coefficients[k].push_back(numbers[k]);
  }
  const at::Device device = images.device();
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor twice_row = (at::arange(height, options) * 2 + 1).view({1, height, 1});
  const at::Tensor twice_column = (at::arange(width, options) * 2 + 1).view({1, 1, width});
  const auto coefficient = [&](std::size_t k) {
    return upload(coefficients[k], {count, 1, 1}, device);
  };
  const auto source = [&](std::size_t k) {
    const at::Tensor twice = coefficient(k) * twice_column + coefficient(k + 1) * twice_row;
    return (twice + coefficient(k + 2) * 2).bitwise_right_shift(kFixedBits + 1);
  };
  const at::Tensor x = source(0), y = source(3);
  const at::Tensor outside = x.lt(0) | x.ge(width) | y.lt(0) | y.ge(height);
  // One more pixel behind the last, which all outside ones are taken from.
  const at::Tensor index = (y * width + x).masked_fill(outside, height * width).flatten(1);
  const at::Tensor padded = at::constant_pad_nd(images.flatten(2), {0, 1}, kFill);
  return take_pixels(padded, index).view(images.sizes());
}

// Rec. 601 luma in whole numbers, [n, 1, H, W] int32.
at::Tensor grey(const at::Tensor& images) {
  const at::Tensor values = images.to(at::kInt);
  if (values.size(1) != 3) return values.narrow(1, 0, 1);
  return (values.select(1, 0) * kGreyRed + values.select(1, 1) * kGreyGreen +
          values.select(1, 2) * kGreyBlue + kGreyHalf)
      .bitwise_right_shift(kGreyBits)
      .unsqueeze(1);
}

// (1 1 1; 1 5 1; 1 1 1) / 13, rounded; the outermost pixels stay.
at::Tensor smoothed(const at::Tensor& images) {
  at::Tensor result = images.to(at::kInt);
  const std::int64_t height = images.size(2) - 2, width = images.size(3) - 2;
  if (height < 1 || width < 1) return result;
  const at::Tensor lines =
      result.narrow(2, 0, height) + result.narrow(2, 1, height) + result.narrow(2, 2, height);
  const at::Tensor inner = result.narrow(2, 1, height).narrow(3, 1, width);
  const at::Tensor sum =
      lines.narrow(3, 0, width) + lines.narrow(3, 1, width) + lines.narrow(3, 2, width) + inner * 4;
  inner.copy_((sum * 2 + 13).div(26, "trunc"));
  return result;
}

// What an enhancement of factor 0 leaves of the image, int32, to be spread over its size.
at::Tensor degenerate(ImageOp op, const at::Tensor& images) {
  switch (op) {
    case ImageOp::color:
      return grey(images);
    case ImageOp::contrast: {
      const std::int64_t pixels = images.size(2) * images.size(3);
      const at::Tensor sum = grey(images).sum({1, 2, 3}, true, at::kLong);
      return (sum * 2 + pixels).div(2 * pixels, "trunc").to(at::kInt);
    }
    case ImageOp::sharpness:
      return smoothed(images);
    default:  // brightness: black
      return at::zeros({1, 1, 1, 1}, images.options().dtype(at::kInt));
  }
}

at::Tensor enhance(ImageOp op, const at::Tensor& images, const Calls& calls) {
  const at::Tensor factor = per_image(calls, images.device(), at::kInt);
  const at::Tensor base = degenerate(op, images);
  const at::Tensor change = (images.to(at::kInt) - base) * factor;
  return to_bytes(change.bitwise_right_shift(kFixedBits) + base);
}

at::Tensor posterize(const at::Tensor& images, const Calls& calls) {
  const at::Tensor kept = per_image(calls, images.device(), at::kByte);
  return images.bitwise_and(kept);
}

at::Tensor solarize(const at::Tensor& images, const Calls& calls) {
  const at::Tensor threshold = per_image(calls, images.device(), at::kInt);
  return at::where(images.to(at::kInt).lt(threshold), images, images.bitwise_not());
}

at::Tensor auto_contrast(const at::Tensor& images) {
  const at::Tensor values = images.to(at::kInt);
  const at::Tensor lowest = values.amin({2, 3}, true), highest = values.amax({2, 3}, true);
  const at::Tensor stretched =
      ((values - lowest) * 255).div((highest - lowest).clamp_min(1), "trunc");
  return at::where(highest.gt(lowest), stretched.to(at::kByte), images);
}

at::Tensor equalize(const at::Tensor& images) {
  const std::int64_t planes = images.size(0) * images.size(1);
  const std::int64_t pixels = images.size(2) * images.size(3);
  const at::Tensor values = images.reshape({planes, pixels}).to(at::kLong);
  const at::Tensor start = (at::arange(planes, values.options()) * 256).unsqueeze(1);
  const at::Tensor histogram = at::zeros({planes * 256}, values.options());
  histogram.scatter_add_(0, (values + start).flatten(),
                         at::ones({planes * pixels}, values.options()));
  const at::Tensor counts = histogram.view({planes, 256});
  // The step leaves out the pixels of the brightest value that occurs.
  const at::Tensor brightest = counts.gather(1, values.amax({1}, true));
  const at::Tensor step = (pixels - brightest).div(255, "trunc");
  const at::Tensor below = counts.cumsum(1) - counts;
  const at::Tensor safe_step = step.clamp_min(1);
  const at::Tensor table =
      (below + safe_step.div(2, "trunc")).div(safe_step, "trunc").clamp_max(255).to(at::kByte);
  const at::Tensor result = table.gather(1, values).view(images.sizes());
  return at::where(step.gt(0).view({images.size(0), images.size(1), 1, 1}), result, images);
}

// Operations that can be done in one go share a family; the first operation stands for it.
ImageOp family_of(ImageOp op) {
  switch (op) {
    case ImageOp::shear_y:
    case ImageOp::translate_x:
    case ImageOp::translate_y:
    case ImageOp::rotate:
      return ImageOp::shear_x;
    case ImageOp::invert:
      return ImageOp::solarize;
    default:
      return op;
  }
}

at::Tensor apply_family(ImageOp family, const at::Tensor& images, const Calls& calls) {
  switch (family) {
    case ImageOp::shear_x:
      return move_pixels(images, calls);
    case ImageOp::posterize:
      return posterize(images, calls);
    case ImageOp::solarize:
      return solarize(images, calls);
    case ImageOp::auto_contrast:
      return auto_contrast(images);
    case ImageOp::equalize:
      return equalize(images);
    default:
      return enhance(family, images, calls);
  }
}

}  // namespace

std::array<std::int64_t, 6> whole_numbers(const ImageOpCall& call, ImageSize size) {
  switch (call.op) {
    case ImageOp::shear_x:
    case ImageOp::shear_y:
    case ImageOp::translate_x:
    case ImageOp::translate_y:
    case ImageOp::rotate: {
      std::array<std::int64_t, 6> numbers{};
      const Affine affine =
          affine_of(call, static_cast<double>(size.height), static_cast<double>(size.width));
      for (std::size_t k = 0; k < affine.size(); ++k) {
        numbers[k] = std::llround(affine[k] * kFixedOne);
      }
      return numbers;
    }
    case ImageOp::posterize:
      return {0xFF & ~(0xFF >> std::llround(call.value))};
    case ImageOp::solarize:
      return {static_cast<std::int64_t>(std::ceil(call.value))};
    case ImageOp::invert:
      return {0};  // solarize from 0 on
    default:
      return {std::llround(call.value * kFixedOne)};
  }
}

at::Tensor apply_image_ops(const at::Tensor& images, const std::vector<ImageOpCall>& calls) {
  if (static_cast<std::int64_t>(calls.size()) != images.size(0)) {
    throw Error(fmt::format("apply_image_ops: {} operations for {} images, expected one each",
                            calls.size(), images.size(0)));
  }
  constexpr std::size_t kOps = static_cast<std::size_t>(ImageOp::invert) + 1;
  std::array<std::vector<std::int64_t>, kOps> members;
  std::array<Calls, kOps> member_calls;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto family = static_cast<std::size_t>(family_of(calls[i].op));
    members[family].push_back(static_cast<std::int64_t>(i));
    member_calls[family].push_back(calls[i]);
  }
  at::Tensor result = images.clone();
  for (std::size_t family = 0; family < kOps; ++family) {
    if (static_cast<ImageOp>(family) == ImageOp::identity || members[family].empty()) continue;
    const auto count = static_cast<std::int64_t>(members[family].size());
    const at::Tensor index = upload(members[family], {count}, images.device());
    result.index_copy_(0, index,
                       apply_family(static_cast<ImageOp>(family), images.index_select(0, index),
                                    member_calls[family]));
  }
  return result;
}

}  // namespace sape2::data
