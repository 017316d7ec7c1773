#include "sape2/infer/prediction.h"

#include "sape2/base/error.h"
#include "sape2/data/image.h"
#include "sape2/data/normalisation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sape2::infer {
namespace {

std::vector<double> softmax(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> shares;
  for (const float logit : logits) shares.push_back(std::exp(logit - largest));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

// From pixels side by side to one plane per channel.
void write_planes(const data::Image& image, std::span<const data::ByteScale> scales,
                  std::span<float> pixels) {
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t plane = image.pixels.size() / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    const data::ByteScale scale = scales[c];
    const std::uint8_t* in = image.pixels.data() + c;
    float* out = pixels.data() + c * plane;
    for (std::size_t i = 0; i < plane; ++i) out[i] = scale(in[i * channels]);
  }
}

}  // namespace

void require_finite(std::span<const float> logits) {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    throw NotFinite(
        "the model's output is not a finite number for this image, so it says nothing; its weights "
        "or the normalisation are damaged");
  }
}

std::string class_name(const nn::ModelConfig& config, std::int64_t index) {
  if (config.class_names.empty()) return "class " + std::to_string(index);
  return config.class_names[static_cast<std::size_t>(index)];
}

void prepare_picture(const nn::ModelConfig& config, const data::Image& picture, nn::Size2d size,
                     std::span<float> pixels) {
  const std::int64_t channels = config.vit.channels;
  if (picture.channels != channels && !(picture.channels == 3 && channels == 1)) {
    throw Error("the model takes images of " + std::to_string(channels) +
                " channels, a picture has " + std::to_string(picture.channels));
  }
  // Before pixels are made, and by division: sizes from nowhere must not wrap around.
  const auto room = static_cast<std::int64_t>(pixels.size()) / channels;
  if (size.height > 0 && size.width > 0 && size.height > room / size.width) {
    throw Error("there is room for " + std::to_string(pixels.size()) +
                " numbers, but a picture of " + std::to_string(channels) + " × " +
                std::to_string(size.height) + " × " + std::to_string(size.width) + " needs more");
  }
  data::Image fitted = data::resize_to_cover(picture, size.height, size.width);
  if (fitted.channels != channels) fitted = data::to_grey(fitted);
  write_planes(fitted, data::byte_scales({config.mean, config.deviation}, channels), pixels);
}

std::vector<Prediction> ranked(const nn::ModelConfig& config, std::span<const float> logits,
                               std::int64_t top) {
  if (logits.size() != static_cast<std::size_t>(config.vit.classes)) {
    throw Error("there are " + std::to_string(logits.size()) +
                " logits, expected one for each of " + std::to_string(config.vit.classes) +
                " classes");
  }
  require_finite(logits);
  const std::vector<double> shares = softmax(logits);
  const std::int64_t count = top > 0 ? std::min(top, config.vit.classes) : config.vit.classes;
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // By logit: equal shares of a far smaller logit keep their order.
  std::ranges::partial_sort(order, order.begin() + count, [&](std::int64_t a, std::int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<Prediction> predictions;
  for (const std::int64_t index : std::span(order).first(count)) {
    predictions.push_back({index, class_name(config, index), shares[index]});
  }
  return predictions;
}

std::vector<Prediction> predict(Session& session, const data::Image& picture, std::int64_t top,
                                std::int64_t size) {
  const nn::ModelConfig& config = session.model().config();
  nn::require_classifier(config, "infer::predict()");
  const nn::Size2d wanted = size > 0 ? nn::Size2d{size, size} : config.vit.image_size;
  std::vector<float> pixels(config.vit.channels * wanted.height * wanted.width);
  prepare_picture(config, picture, wanted, pixels);
  const std::vector<float> logits = session.run({pixels.data(), 1, wanted.height, wanted.width});
  return ranked(config, logits, top);
}

}  // namespace sape2::infer
