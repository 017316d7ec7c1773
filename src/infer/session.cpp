#include "sape2/infer/session.h"

#include "sape2/base/error.h"

#include "infer/session_state.h"

#include <algorithm>
#include <string>

namespace sape2::infer {
namespace {

// Plans are small beside a model, and few programs see images of more sizes.
constexpr std::size_t kMostPlans = 4;
// As many tokens as a configuration may ask for.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;
constexpr std::int64_t kMostImages = std::int64_t{1} << 20;

Grid grid_of(const nn::ViTConfig& vit, std::int64_t height, std::int64_t width) {
  const nn::Size2d patch = vit.patch_size;
  if (height < 1 || width < 1 || height % patch.height || width % patch.width) {
    throw Error("images are " + std::to_string(height) + "×" + std::to_string(width) +
                ", which patches of " + std::to_string(patch.height) + "×" +
                std::to_string(patch.width) + " do not divide");
  }
  const std::int64_t rows = height / patch.height, cols = width / patch.width;
  if (rows > kMostTokens || cols > kMostTokens || rows * cols + vit.prefix() > kMostTokens) {
    throw Error("images are " + std::to_string(height) + "×" + std::to_string(width) +
                ", which makes more patches than the " + std::to_string(kMostTokens) +
                " that are supported");
  }
  return {rows, cols, vit.prefix()};
}

}  // namespace

Session::State::State(Model model_, const SessionOptions& options) : model(std::move(model_)) {
  if (options.threads < 0) {
    throw Error("threads is " + std::to_string(options.threads) +
                ", expected 0 for one on each core, or a number from 1");
  }
  if (options.executor == nullptr) pool.emplace(options.threads);
  executor = options.executor ? options.executor : &*pool;
}

const GridPlan& Session::State::plan_for(std::int64_t height, std::int64_t width) {
  const Grid grid = grid_of(model.config().vit, height, width);
  const auto found = std::ranges::find_if(plans, [&](const GridPlan& plan) {
    return plan.grid.rows == grid.rows && plan.grid.cols == grid.cols;
  });
  if (found != plans.end()) {
    plans.splice(plans.begin(), plans, found);
    return plans.front();
  }
  plans.push_front(model.network().plan(grid));
  if (plans.size() > kMostPlans) plans.pop_back();
  return plans.front();
}

void Session::State::check(const ImageBatch& images) const {
  if (images.count < 0 || images.count > kMostImages) {
    throw Error("the batch has " + std::to_string(images.count) +
                " images, expected a number from 0 to " + std::to_string(kMostImages));
  }
  if (images.count > 0 && images.pixels == nullptr) {
    throw Error("the images have no pixels: expected " + std::to_string(images.count) + "×" +
                std::to_string(model.config().vit.channels) + "×" + std::to_string(images.height) +
                "×" + std::to_string(images.width) + " numbers");
  }
}

std::int64_t Session::State::logits_of(const ImageBatch& images) const {
  const nn::ModelConfig& config = model.config();
  // An empty batch has no size that could be wrong.
  if (images.count == 0 || config.head() == nn::Head::image) {
    return images.count * config.vit.classes;
  }
  return images.count * model.network().logits_on(grid_of(config.vit, images.height, images.width));
}

void Session::State::run(const ImageBatch& images, float* logits, const LayerWatcher& watcher) {
  check(images);
  const GridPlan& plan = plan_for(images.height, images.width);
  if (images.count == 0) return;
  const BatchRun batch(model.network(), plan, memory, *executor, images);
  if (watcher) {
    batch.run_watched(logits, watcher);
  } else {
    batch.run(logits);
  }
}

Session::Session(Model model, const SessionOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const Model& Session::model() const {
  return state_->model;
}

void Session::run(const ImageBatch& images, std::span<float> logits) {
  state_->check(images);
  const std::int64_t expected = state_->logits_of(images);
  if (static_cast<std::int64_t>(logits.size()) != expected) {
    const bool patches = state_->model.config().head() == nn::Head::pixels;
    throw Error("there is room for " + std::to_string(logits.size()) + " logits, expected " +
                std::to_string(expected) + ": one for each image" + (patches ? ", patch" : "") +
                " and class");
  }
  state_->run(images, logits.data());
}

std::vector<float> Session::run(const ImageBatch& images) {
  state_->check(images);
  std::vector<float> logits(static_cast<std::size_t>(state_->logits_of(images)));
  run(images, logits);
  return logits;
}

void Session::prepare(std::int64_t count, std::int64_t height, std::int64_t width) {
  // A run is what takes all memory that a run takes.
  const std::int64_t numbers = state_->model.config().vit.channels * height * width;
  grid_of(state_->model.config().vit, height, width);
  const std::vector<float> pixels(static_cast<std::size_t>(count * numbers));
  run({pixels.data(), count, height, width});
}

std::size_t Session::bytes() const {
  std::size_t numbers = 0;
  for (const GridPlan& plan : state_->plans) {
    numbers += plan.added.size();
    for (const auto& added : plan.added_in_layers) numbers += added.size();
  }
  return numbers * sizeof(float) + state_->memory.bytes();
}

}  // namespace sape2::infer
