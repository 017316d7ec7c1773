#include "sape2/train/flat_parameters.h"

#include "sape2/nn/vit.h"
#include "sape2/ops/training.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sape2::train {
namespace {

// Every parameter begins at a multiple of 64 bytes (of 32 in bfloat16), as vector units like it.
constexpr int64_t kAlignment = 16;

bool belongs_to_encoding(const std::string& name) {
  return name.starts_with("pos_embed") || name.find(".pos.") != std::string::npos;
}

at::Tensor slice(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes, int64_t count) {
  return flat.narrow(0, offset, count).view(sizes);
}

}  // namespace

FlatParameters::FlatParameters(nn::ViT& model, at::ScalarType compute_type)
    : compute_type_(compute_type) {
  const at::NoGradGuard no_grad;
  const bool rounds = compute_type != at::kFloat;
  for (const auto& item : model.named_parameters()) {
    slots_.push_back({item.key(), item.value(), 0, rounds && !belongs_to_encoding(item.key())});
  }
  // Decayed ones first, then other rounded ones, then those of encodings.
  const auto rank = [&](const Slot& slot) {
    if (model.decayed_parameters().contains(slot.name)) return 0;
    return belongs_to_encoding(slot.name) ? 2 : 1;
  };
  std::ranges::stable_sort(slots_, {}, rank);

  int64_t size = 0;
  for (Slot& slot : slots_) {
    slot.offset = size;
    size += (slot.parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
    if (rank(slot) == 0) decayed_ = size;
    if (slot.rounded) rounded_ = size;
  }
  const auto options = slots_.front().parameter.options().dtype(at::kFloat).requires_grad(false);
  weights_ = at::zeros({size}, options);
  gradients_ = at::zeros({size}, options);
  if (rounds) {
    rounded_weights_ = at::zeros({rounded_}, options.dtype(compute_type));
  }
  for (Slot& slot : slots_) {
    at::Tensor& parameter = slot.parameter;
    const auto sizes = parameter.sizes().vec();
    const int64_t count = parameter.numel();
    slice(weights_, slot.offset, sizes, count).copy_(parameter);
    const at::Tensor& home = slot.rounded ? rounded_weights_ : weights_;
    parameter.set_data(slice(home, slot.offset, sizes, count));
  }
  publish_weights();
}

void FlatParameters::forget_gradients() {
  for (Slot& slot : slots_) slot.parameter.mutable_grad() = at::Tensor();
  collected_ = false;
}

void FlatParameters::collect_gradients() {
  collect_gradients(0, static_cast<int64_t>(slots_.size()));
  all_collected();
}

void FlatParameters::collect_gradients(int64_t first, int64_t end) {
  std::vector<ops::GradientPiece> pieces;
  for (int64_t i = first; i < end; ++i) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    at::Tensor& gradient = slot.parameter.mutable_grad();
    if (gradient.defined()) {
      pieces.push_back({gradient, slot.offset});
    } else if (!collected_) {
      gradients_.narrow(0, slot.offset, slot.parameter.numel()).zero_();
    }
    // Handed over, so that the next backward pass need not add to it.
    gradient = at::Tensor();
  }
  ops::gather_gradients(pieces, gradients_, collected_);
}

void FlatParameters::publish_weights() {
  if (rounded_weights_.defined()) rounded_weights_.copy_(weights_.narrow(0, 0, rounded_));
}

at::Tensor FlatParameters::zeros() const {
  return at::zeros_like(weights_);
}

io::NamedTensors FlatParameters::views(const at::Tensor& flat) const {
  io::NamedTensors parts;
  for (const Slot& slot : slots_) {
    parts.emplace(slot.name,
                  slice(flat, slot.offset, slot.parameter.sizes(), slot.parameter.numel()));
  }
  return parts;
}

void copy_weights(const io::NamedTensors& weights, nn::ViT& model) {
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) item.value().copy_(weights.at(item.key()));
}

}  // namespace sape2::train
