#include "sape2/train/training_step.h"

#include "sape2/nn/vit.h"

#include "train/loss.h"

#include <ATen/ATen.h>

#include <chrono>

namespace sape2::train {
namespace {

at::ScalarType compute_type(const Recipe& recipe) {
  return recipe.precision == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

Adam::Options adam_options(const Recipe& recipe) {
  return {.beta1 = recipe.beta1,
          .beta2 = recipe.beta2,
          .epsilon = recipe.epsilon,
          .weight_decay = recipe.weight_decay,
          .decoupled = recipe.optimizer == "adamw"};
}

// SplitMix64: neighbouring steps get unrelated seeds.
uint64_t mixed(uint64_t seed, uint64_t step) {
  uint64_t x = seed + (step + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

void add_group(io::NamedTensors& state, const std::string& group, const io::NamedTensors& parts) {
  for (const auto& [name, tensor] : parts) state.emplace(group + name, tensor);
}

}  // namespace

TrainingStep::TrainingStep(nn::ViT& model, const Recipe& recipe, uint64_t seed)
    : model_(model),
      recipe_(recipe),
      seed_(seed),
      parameters_(model, compute_type(recipe)),
      adam_(parameters_.weights(), parameters_.decayed(), adam_options(recipe)) {
  model_.train();
  if (recipe.ema_decay > 0) average_.emplace(parameters_.weights(), recipe.ema_decay);
}

TrainingStep::Outcome TrainingStep::run(const Batch& batch, double learning_rate, int64_t step) {
  at::manual_seed(mixed(seed_, static_cast<uint64_t>(step)));
  elapsed();
  Outcome outcome;
  outcome.loss = accumulate_gradients(batch);
  const at::NoGradGuard no_grad;
  outcome.gradient_norm = norm_of(parameters_.gradients());
  const at::Tensor scale = clip_factor(outcome.gradient_norm, recipe_.clip_norm);
  adam_.step(parameters_.gradients(), learning_rate, scale);
  parameters_.publish_weights();
  if (average_) average_->update(parameters_.weights(), step);
  if (seconds_ != nullptr) seconds_->optimizer += elapsed();
  return outcome;
}

// The mean loss of the batch; gradients are left in parameters_.
at::Tensor TrainingStep::accumulate_gradients(const Batch& batch) {
  parameters_.zero_gradients();
  const auto pieces = recipe_.accumulation;
  const auto images = batch.images.chunk(pieces), targets = batch.targets.chunk(pieces);
  const auto count = static_cast<double>(batch.images.size(0));
  at::Tensor total;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const at::Tensor logits = model_.forward(images[i].to(parameters_.compute_type()));
    const at::Tensor loss = summed_cross_entropy(logits, targets[i]) / count;
    if (seconds_ != nullptr) seconds_->forward += elapsed();
    loss.backward();
    parameters_.collect_gradients();
    total = total.defined() ? total + loss.detach() : loss.detach();
    if (seconds_ != nullptr) seconds_->backward += elapsed();
  }
  return total;
}

// Seconds since it was last asked; 0 unless time is measured.
double TrainingStep::elapsed() {
  if (seconds_ == nullptr) return 0;
  if (!parameters_.weights().is_cpu()) parameters_.weights().select(0, 0).item<float>();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const double before = mark_;
  mark_ = std::chrono::duration<double>(now).count();
  return mark_ - before;
}

io::NamedTensors TrainingStep::state() const {
  io::NamedTensors state;
  add_group(state, "weights.", parameters_.views(parameters_.weights()));
  add_group(state, "mean.", parameters_.views(adam_.mean()));
  add_group(state, "square.", parameters_.views(adam_.square()));
  if (average_) add_group(state, "average.", parameters_.views(average_->value()));
  return state;
}

void TrainingStep::restored(int64_t steps_done) {
  adam_.set_steps_done(steps_done);
  parameters_.publish_weights();
}

io::NamedTensors TrainingStep::weights_to_keep() const {
  return parameters_.views(average_ ? average_->value() : parameters_.weights());
}

}  // namespace sape2::train
