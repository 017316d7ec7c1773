#include "sape2/infer/inspection.h"

#include "sape2/base/error.h"

#include "infer/session_state.h"

#include <cmath>
#include <string>

namespace sape2::infer {

struct Inspection::State {
  Model model;
  GridPlan plan;
  std::vector<float> logits;
  std::vector<float> features;             // (patches, width)
  std::vector<std::vector<float>> layers;  // (2, tokens, width) each: q and k
};

Inspection::Inspection(Session& session, const ImageBatch& image) {
  if (image.count != 1) {
    throw Error("an inspection looks at one image, but the batch has " +
                std::to_string(image.count));
  }
  Session::State& running = *session.state_;
  const nn::ViTConfig& vit = running.model.config().vit;
  const Grid grid = running.plan_for(image.height, image.width).grid;
  // A plan of its own: the session may drop the one it has.
  state_ =
      std::make_unique<State>(State{running.model, running.model.network().plan(grid), {}, {}, {}});
  state_->logits.resize(static_cast<std::size_t>(running.model.network().logits_on(grid)));
  const auto keep = [&](std::int64_t layer, const Activations& activations) {
    const std::int64_t width = vit.width;
    if (layer == vit.depth) {
      const float* patches = activations.tokens + grid.prefix * width;
      state_->features.assign(patches, patches + grid.patches() * width);
      return;
    }
    std::vector<float>& kept =
        state_->layers.emplace_back(static_cast<std::size_t>(2 * grid.tokens() * width));
    for (std::int64_t token = 0; token < grid.tokens(); ++token) {
      const float* qkv = activations.qkv + token * 3 * width;
      std::copy_n(qkv, width, kept.data() + token * width);
      std::copy_n(qkv + width, width, kept.data() + (grid.tokens() + token) * width);
    }
  };
  running.run(image, state_->logits.data(), keep);
}

Inspection::~Inspection() = default;
Inspection::Inspection(Inspection&&) noexcept = default;
Inspection& Inspection::operator=(Inspection&&) noexcept = default;

const Model& Inspection::model() const {
  return state_->model;
}

const Grid& Inspection::grid() const {
  return state_->plan.grid;
}

std::int64_t Inspection::layers() const {
  return state_->model.config().vit.depth;
}

std::int64_t Inspection::heads() const {
  return state_->model.config().vit.heads;
}

const std::vector<float>& Inspection::logits() const {
  return state_->logits;
}

const std::vector<float>& Inspection::features() const {
  return state_->features;
}

AttentionRows Inspection::rows(std::int64_t layer, std::span<const std::int64_t> patches) const {
  if (layer < 0 || layer >= layers()) {
    throw Error("layer " + std::to_string(layer) + " does not exist; expected a number from 0 to " +
                std::to_string(layers() - 1));
  }
  for (const std::int64_t patch : patches) {
    if (patch >= 0 && patch < grid().patches()) continue;
    throw Error("patch " + std::to_string(patch) +
                " is outside the grid; expected a number from 0 to " +
                std::to_string(grid().patches() - 1));
  }
  const nn::ViTConfig& vit = state_->model.config().vit;
  const std::int64_t size = vit.head_size(), numbers = grid().tokens() * vit.width;
  const float* q = state_->layers[static_cast<std::size_t>(layer)].data();
  const auto view = [&](const float* data) {
    return kernels::ConstView{data, numbers, size, vit.width};
  };
  const QueriesAndKeys tokens{{1, vit.heads, grid().rows, grid().cols, grid().prefix, size},
                              view(q),
                              view(q + numbers),
                              1.0F / std::sqrt(static_cast<float>(size))};
  return state_->plan.layers[static_cast<std::size_t>(layer)]->inspect(tokens, patches);
}

std::size_t Inspection::bytes() const {
  std::size_t numbers = state_->logits.size() + state_->features.size();
  for (const auto& layer : state_->layers) numbers += layer.size();
  return numbers * sizeof(float);
}

}  // namespace sape2::infer
