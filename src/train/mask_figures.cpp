#include "sape2/train/mask_figures.h"

#include "sape2/data/dataset.h"
#include "sape2/dist/group.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace sape2::train {
namespace {

constexpr double kToleranceShare = 0.0075;

// Spreads classes over the pixels of one mask that are not counted, step by step.
void fill_mask(uint8_t* mask, int64_t height, int64_t width) {
  const auto is_open = [&](int64_t at) { return mask[at] == data::kNotCounted; };
  const auto neighbours = [&](int64_t at) {
    const int64_t y = at / width, x = at % width;
    return std::array<int64_t, 4>{y > 0 ? at - width : -1, y + 1 < height ? at + width : -1,
                                  x > 0 ? at - 1 : -1, x + 1 < width ? at + 1 : -1};
  };
  // The open pixels beside those that have a class, each once.
  std::vector<int64_t> front;
  for (int64_t at = 0; at < height * width; ++at) {
    if (!is_open(at)) continue;
    const auto around = neighbours(at);
    if (std::ranges::any_of(around, [&](int64_t n) { return n >= 0 && !is_open(n); })) {
      front.push_back(at);
    }
  }
  std::vector<uint8_t> found;
  while (!front.empty()) {
    found.clear();
    for (const int64_t at : front) {
      uint8_t lowest = data::kNotCounted;
      for (const int64_t n : neighbours(at)) {
        if (n >= 0) lowest = std::min(lowest, mask[n]);
      }
      found.push_back(lowest);
    }
    for (std::size_t i = 0; i < front.size(); ++i) mask[front[i]] = found[i];
    std::vector<int64_t> next;
    for (const int64_t at : front) {
      for (const int64_t n : neighbours(at)) {
        if (n >= 0 && is_open(n)) next.push_back(n);
      }
    }
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    front = std::move(next);
  }
}

// The pixels within that Euclidean distance of a true one.
at::Tensor near(const at::Tensor& flags, int64_t distance) {
  const auto options = at::device(flags.device()).dtype(at::kLong);
  const at::Tensor offset = at::arange(-distance, distance + 1, options).square();
  const at::Tensor disc = (offset.unsqueeze(0) + offset.unsqueeze(1)).le(distance * distance);
  const int64_t side = 2 * distance + 1;
  return at::conv2d(flags.unsqueeze(1).to(at::kFloat), disc.to(at::kFloat).view({1, 1, side, side}),
                    {}, 1, distance)
      .squeeze(1)
      .gt(0.5);
}

at::Tensor pixels_of(const at::Tensor& flags) {
  return flags.flatten(1).sum(1).to(at::kDouble);
}

}  // namespace

int64_t boundary_tolerance(int64_t height, int64_t width) {
  const double diagonal = std::hypot(static_cast<double>(height), static_cast<double>(width));
  return std::max<int64_t>(1, std::llround(kToleranceShare * diagonal));
}

at::Tensor filled_masks(const at::Tensor& masks) {
  at::Tensor filled = masks.to(at::kCPU).contiguous().clone();
  const int64_t height = masks.size(1), width = masks.size(2);
  auto* pixels = filled.data_ptr<uint8_t>();
  at::parallel_for(0, masks.size(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fill_mask(pixels + i * height * width, height, width);
  });
  return filled;
}

at::Tensor boundary_of(const at::Tensor& masks, int64_t index) {
  const at::Tensor inside = masks.eq(index);
  // Beyond the image everything is as its outermost pixels are: its edge is no boundary.
  const at::Tensor padded =
      at::replication_pad2d(inside.to(at::kFloat).unsqueeze(1), {1, 1, 1, 1}).squeeze(1).gt(0.5);
  const int64_t height = masks.size(1), width = masks.size(2);
  const auto moved = [&](int64_t down, int64_t right) {
    return padded.narrow(1, 1 + down, height).narrow(2, 1 + right, width);
  };
  const at::Tensor surrounded = moved(-1, 0) & moved(1, 0) & moved(0, -1) & moved(0, 1);
  return inside & surrounded.logical_not();
}

MaskCounts::MaskCounts(int64_t classes, at::Device device)
    : classes_(classes),
      confusion_(at::zeros({classes * classes}, at::device(device).dtype(at::kLong))),
      boundary_sum_(at::zeros({classes}, at::device(device).dtype(at::kDouble))),
      boundary_images_(at::zeros({classes}, at::device(device).dtype(at::kDouble))) {}

void MaskCounts::add(const at::Tensor& predicted, const at::Tensor& masks) {
  const at::Tensor truth = masks.to(predicted.device(), at::kLong);
  const at::Tensor counted = truth.ne(static_cast<int64_t>(data::kNotCounted));
  // Pixels that are not counted go to a bin of their own, which is cut off.
  const int64_t bins = classes_ * classes_;
  const at::Tensor bin =
      at::where(counted, truth * classes_ + predicted, at::full({}, bins, truth.options()));
  confusion_ += at::bincount(bin.flatten(), {}, bins + 1).narrow(0, 0, bins);

  const at::Tensor whole = filled_masks(masks).to(predicted.device());
  const int64_t distance = boundary_tolerance(masks.size(1), masks.size(2));
  for (int64_t index = 0; index < classes_; ++index) {
    const at::Tensor mine = boundary_of(predicted, index), real = boundary_of(whole, index);
    const at::Tensor all_mine = pixels_of(mine), all_real = pixels_of(real);
    const at::Tensor precision = pixels_of(mine & near(real, distance)) / all_mine.clamp_min(1);
    const at::Tensor recall = pixels_of(real & near(mine, distance)) / all_real.clamp_min(1);
    const at::Tensor f1 = 2 * precision * recall / (precision + recall).clamp_min(1e-12);
    boundary_sum_.select(0, index).add_(f1.sum());
    boundary_images_.select(0, index).add_((all_mine + all_real).gt(0).sum());
  }
}

void MaskCounts::add_up(dist::Group& group) {
  for (const at::Tensor* sum : {&confusion_, &boundary_sum_, &boundary_images_}) group.sum(*sum);
}

at::Tensor MaskCounts::confusion() const {
  return confusion_.view({classes_, classes_}).cpu();
}

Figures MaskCounts::figures() const {
  const at::Tensor counts = confusion();
  const at::Tensor seen = boundary_images_.gt(0);
  const bool any = seen.any().item<bool>();
  // No boundary anywhere, true or predicted: none was missed.
  const double f1 =
      any ? (boundary_sum_ / boundary_images_).masked_select(seen).mean().item<double>() : 1;
  return {{"mean_iou", mean_iou(counts)},
          {"boundary_f1", f1},
          {"pixel_accuracy", pixel_accuracy(counts)}};
}

std::vector<double> class_ious(const at::Tensor& confusion) {
  const at::Tensor counts = confusion.to(at::kCPU, at::kDouble);
  const at::Tensor both = counts.diagonal();
  const at::Tensor either = counts.sum(0) + counts.sum(1) - both;
  std::vector<double> ious;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const auto all = either[i].item<double>();
    ious.push_back(all > 0 ? both[i].item<double>() / all : std::nan(""));
  }
  return ious;
}

double mean_iou(const at::Tensor& confusion) {
  double sum = 0, count = 0;
  for (const double iou : class_ious(confusion)) {
    if (std::isnan(iou)) continue;
    sum += iou;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

double pixel_accuracy(const at::Tensor& confusion) {
  const auto all = confusion.sum().item<int64_t>();
  if (all == 0) return 0;
  return static_cast<double>(confusion.diagonal().sum().item<int64_t>()) / static_cast<double>(all);
}

}  // namespace sape2::train
