#include "sape2/data/augment.h"
#include "sape2/data/random.h"

#include "data/augment/draws.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace sape2::data {
namespace {

constexpr int kEraseAttempts = 10;
constexpr double kSmallestErased = 0.02, kLargestErased = 1.0 / 3;
constexpr double kFlattestErased = 0.3, kSteepestErased = 3.3;

void draw_erased_box(Boxes& boxes, Draws draws, double probability, std::int64_t height,
                     std::int64_t width) {
  if (draws.chance(probability)) {
    for (int attempt = 0; attempt < kEraseAttempts; ++attempt) {
      const double area =
          draws.uniform(kSmallestErased, kLargestErased) * static_cast<double>(height * width);
      const double proportion =
          std::exp(draws.uniform(std::log(kFlattestErased), std::log(kSteepestErased)));
      const std::int64_t tall = std::llround(std::sqrt(area * proportion));
      const std::int64_t wide = std::llround(std::sqrt(area / proportion));
      if (tall < 1 || wide < 1 || tall >= height || wide >= width) continue;
      const std::int64_t top = draws.between(0, height - tall);
      const std::int64_t left = draws.between(0, width - wide);
      boxes.add(top, left, top + tall, left + wide);
      return;
    }
  }
  boxes.add(0, 0, 0, 0);
}

// Each image has one partner and is the partner of one.
std::vector<std::int64_t> draw_partners(std::int64_t batch, const BatchKey& key) {
  return shuffled(batch, Draws(key.seed, key.epoch, key.first, Purpose::partner));
}

// By index into the images that are made; an image whose partner is not made is its own.
std::vector<std::int64_t> partners_at(const BatchKey& key) {
  const auto partners = draw_partners(key.batch, key);
  std::vector<std::int64_t> index_of(partners.size(), -1);
  for (std::size_t i = 0; i < key.places.size(); ++i) {
    index_of[static_cast<std::size_t>(key.places[i])] = static_cast<std::int64_t>(i);
  }
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < key.places.size(); ++i) {
    const std::int64_t partner = partners[static_cast<std::size_t>(key.places[i])];
    const std::int64_t index = index_of[static_cast<std::size_t>(partner)];
    found.push_back(index < 0 ? static_cast<std::int64_t>(i) : index);
  }
  return found;
}

// Each image's own share and the rest of its partner; no step is fused, so devices agree.
at::Tensor blended(const at::Tensor& own, const at::Tensor& partners, const at::Tensor& share) {
  at::Tensor rest = own.index_select(0, partners).mul_(1 - share);
  return rest.add_(own * share);
}

}  // namespace

Boxes draw_erased(std::int64_t batch, ImageSize size, double probability, const BatchKey& key) {
  Boxes boxes;
  for (std::int64_t i = 0; i < batch; ++i) {
    draw_erased_box(boxes, Draws(key.seed, key.epoch, key.image(i), Purpose::erase), probability,
                    size.height, size.width);
  }
  return boxes;
}

bool mixes(const MixOptions& options) {
  return options.probability > 0 && (options.mixup > 0 || options.cutmix > 0);
}

std::vector<std::int64_t> places_of_part(std::int64_t begin, std::int64_t end, std::int64_t batch,
                                         const MixOptions& options, const BatchKey& key) {
  std::vector<std::int64_t> places;
  for (std::int64_t place = begin; place < end; ++place) places.push_back(place);
  if (!mixes(options)) return places;
  const auto partners = draw_partners(batch, key);
  for (std::int64_t place = begin; place < end; ++place) {
    const std::int64_t partner = partners[static_cast<std::size_t>(place)];
    if (partner < begin || partner >= end) places.push_back(partner);
  }
  return places;
}

MixDraws draw_mix(std::int64_t batch, ImageSize size, const MixOptions& options,
                  const BatchKey& key) {
  const auto [height, width] = size;
  MixDraws shares;
  shares.partners = key.places.empty() ? draw_partners(batch, key) : partners_at(key);
  for (std::int64_t i = 0; i < batch; ++i) {
    Draws draws(key.seed, key.epoch, key.image(i), Purpose::mix);
    const bool mixed = draws.chance(options.probability);
    const bool cut = options.mixup <= 0 || (options.cutmix > 0 && draws.chance(0.5));
    const double kept = mixed ? draws.beta(cut ? options.cutmix : options.mixup) : 1;
    if (!mixed || !cut) {
      shares.boxes.add(0, 0, 0, 0);
      shares.of_pixels.push_back(static_cast<float>(kept));
      shares.of_targets.push_back(static_cast<float>(kept));
      continue;
    }
    const double side = std::sqrt(1 - kept);
    const auto tall = static_cast<std::int64_t>(static_cast<double>(height) * side);
    const auto wide = static_cast<std::int64_t>(static_cast<double>(width) * side);
    const std::int64_t y = draws.below(static_cast<std::uint32_t>(height));
    const std::int64_t x = draws.below(static_cast<std::uint32_t>(width));
    const std::int64_t top = std::max<std::int64_t>(0, y - tall / 2);
    const std::int64_t left = std::max<std::int64_t>(0, x - wide / 2);
    const std::int64_t bottom = std::min(height, y + tall / 2);
    const std::int64_t right = std::min(width, x + wide / 2);
    shares.boxes.add(top, left, bottom, right);
    shares.of_pixels.push_back(1);
    const double area = static_cast<double>((bottom - top) * (right - left));
    shares.of_targets.push_back(static_cast<float>(1 - area / static_cast<double>(height * width)));
  }
  return shares;
}

at::Tensor random_erase(const at::Tensor& images, double probability, const BatchKey& key) {
  if (probability <= 0) return images;
  const std::int64_t height = images.size(2), width = images.size(3);
  const Boxes boxes = draw_erased(images.size(0), {height, width}, probability, key);
  return images.masked_fill(boxes.mask(height, width, images.device()), 0);
}

at::Tensor smooth_targets(const at::Tensor& labels, std::int64_t classes, double smoothing) {
  const auto options = labels.options().dtype(at::kFloat);
  const double rest = smoothing / static_cast<double>(classes);
  return at::full({labels.size(0), classes}, rest, options)
      .scatter_(1, labels.unsqueeze(1), 1 - smoothing + rest);
}

MixedBatch mix(const at::Tensor& images, const at::Tensor& targets, const MixOptions& options,
               const BatchKey& key) {
  if (!mixes(options) || images.size(0) == 0) return {images, targets};
  const std::int64_t batch = images.size(0), height = images.size(2), width = images.size(3);
  const at::Device device = images.device();
  const MixDraws shares = draw_mix(batch, {height, width}, options, key);
  const at::Tensor partner = upload(shares.partners, {batch}, device);
  const at::Tensor of_pixels = upload(shares.of_pixels, {batch, 1, 1, 1}, device)
                                   .masked_fill(shares.boxes.mask(height, width, device), 0);
  const at::Tensor of_targets = upload(shares.of_targets, {batch, 1}, device);
  return {blended(images, partner, of_pixels), blended(targets, partner, of_targets)};
}

}  // namespace sape2::data
