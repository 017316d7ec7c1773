#include "sape2/train/training_step.h"

#include "sape2/base/hash.h"
#include "sape2/nn/vit.h"
#include "sape2/ops/training.h"

#include "train/gradient_exchange.h"
#include "train/step_runner.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

// Neighbouring steps get unrelated seeds.
uint64_t mixed(uint64_t seed, uint64_t step) {
  return base::split_mix(seed + (step + 1) * base::kSplitMixStep);
}

void add_group(io::NamedTensors& state, const std::string& group, const io::NamedTensors& parts) {
  for (const auto& [name, tensor] : parts) state.emplace(group + name, tensor);
}

std::optional<WeightAverage> average_of(const at::Tensor& weights, const Recipe& recipe) {
  if (recipe.ema_decay == 0) return std::nullopt;
  return WeightAverage(weights, recipe.ema_decay);
}

at::Tensor value_of(const std::optional<WeightAverage>& average) {
  return average ? average->value() : at::Tensor();
}

std::optional<c10::Stream> side_stream(const c10::Device& device) {
  if (device.is_cpu()) return std::nullopt;
  // Not from the pool that data loaders take theirs from: what they do must not be recorded.
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

bool has_dropout(const nn::ViTConfig& model) {
  return model.embedding_dropout > 0 || model.projection_dropout > 0 || model.mlp_dropout > 0;
}

// Places whose times are taken: the start, then two for each piece of a batch, then the end.
constexpr int64_t kMostMeasuredPieces = (StepRunner::kMostMarks - 2) / 2;

}  // namespace

TrainingStep::TrainingStep(nn::ViT& model, const Recipe& recipe, uint64_t seed, dist::Group* group)
    : model_(model),
      recipe_(recipe),
      task_(task_of(model)),
      loss_(task_.loss(recipe)),
      seed_(seed),
      parameters_(model, compute_type(recipe)),
      average_(average_of(parameters_.weights(), recipe)),
      adam_(parameters_.weights(), parameters_.decayed(), adam_options(recipe),
            {.average = value_of(average_), .copy = parameters_.rounded_weights()}),
      group_(group),
      outcome_(at::zeros({3}, parameters_.weights().options())),
      shared_(at::zeros({2}, parameters_.weights().options())),
      counted_(at::zeros({}, parameters_.weights().options().dtype(at::kLong))),
      runner_(new_runner()),
      side_stream_(side_stream(parameters_.weights().device())) {
  model_.train();
}

TrainingStep::~TrainingStep() = default;

double TrainingStep::Outcome::loss() const {
  return numbers.select(0, 0).item<double>();
}

double TrainingStep::Outcome::gradient_norm() const {
  return numbers.select(0, 1).item<double>();
}

bool TrainingStep::Outcome::stops() const {
  return numbers.select(0, 2).item<double>() > 0;
}

// What cannot be recorded is done as it is given.
std::unique_ptr<StepRunner> TrainingStep::new_runner() const {
  const bool records = group_ == nullptr || group_->recordable();
  return records ? make_step_runner(parameters_.weights().device()) : make_plain_runner();
}

TrainingStep::Outcome TrainingStep::run(const Batch& batch, double learning_rate, int64_t step) {
  const uint64_t seed = mixed(seed_, static_cast<uint64_t>(step));
  // Dropout draws from LibTorch's own generators, which all runs of a process share.
  if (has_dropout(model_.config().vit)) {
    at::manual_seed(group_ == nullptr ? seed : mixed(seed, static_cast<uint64_t>(group_->rank())));
  }
  const int64_t images = batch.images.size(0);
  whole_batch_ = batch.whole > 0 ? batch.whole : images;
  place(inputs_.images, batch.images);
  place(inputs_.targets, batch.targets);
  // Drawn for the batch of all processes, so that an image's factors do not depend on their number.
  const at::Tensor factors = model_.draw_depth(whole_batch_, at::detail::createCPUGenerator(seed));
  place(inputs_.depth_factors,
        factors.defined() ? factors.narrow(1, batch.begin, images) : factors);
  if (group_ != nullptr) place(inputs_.vote, at::tensor({votes_to_stop_ ? 1.0F : 0.0F}));
  place(inputs_.numbers,
        adam_.numbers(step + 1, learning_rate, average_ ? average_->share(step) : 0));
  runner_->run([this] { compute(); });
  if (seconds_ != nullptr) add_seconds();
  return {outcome_.clone()};
}

// Copies a value to where it is read from. On the CPU, where nothing is recorded, it stays its own.
void TrainingStep::place(at::Tensor& home, const at::Tensor& value) {
  const c10::Device device = parameters_.weights().device();
  if (!value.defined() || device.is_cpu()) {
    home = value;
    return;
  }
  if (!home.defined() || home.sizes() != value.sizes()) {
    // Another batch size is another step to record.
    if (home.defined()) {
      runner_ = new_runner();
      exchange_ = nullptr;
    }
    home = at::empty(value.sizes(), value.options().device(device));
  }
  home.copy_(value.is_cpu() ? value.pin_memory() : value, /*non_blocking=*/true);
}

void TrainingStep::compute() {
  mark(0);
  const at::Tensor loss = accumulate_gradients();
  const at::NoGradGuard no_grad;
  if (group_ != nullptr) outcome_.select(0, 2).copy_(shared_.select(0, 1));
  const at::Tensor norm = clipped_norm(parameters_.gradients(), recipe_.clip_norm);
  adam_.step(parameters_.gradients(), norm.select(0, 1), inputs_.numbers);
  outcome_.select(0, 0).copy_(loss);
  outcome_.select(0, 1).copy_(norm.select(0, 0));
  mark(StepRunner::kMostMarks - 1);
}

void TrainingStep::mark(int place) {
  if (seconds_ != nullptr) runner_->mark(place);
}

// Leaves the gradients in parameters_, those of all processes after the last piece of a batch.
void TrainingStep::backward(const at::Tensor& loss, const at::Tensor& total, bool last,
                            const std::function<void()>& join) {
  if (group_ == nullptr || !last) {
    loss.backward();
    join();
    return parameters_.collect_gradients();
  }
  // Made here: its hooks belong to the stream that backward passes run on.
  if (!exchange_) {
    exchange_ = std::make_unique<GradientExchange>(parameters_, *group_);
    exchange_->overlap(!sends_late_);
  }
  {
    const at::NoGradGuard no_grad;
    shared_.select(0, 0).copy_(total);
    shared_.narrow(0, 1, 1).copy_(inputs_.vote);
  }
  exchange_->begin(shared_, join);
  loss.backward();
  exchange_->finish();
}

// What a loss is the mean over has to be known before the backward pass, which sends gradients as
// they are. Where it depends on the targets, it is added up beside the forward pass.
dist::Group::Sum TrainingStep::begin_count() {
  const at::Tensor own = task_.counted(inputs_.targets);
  if (!own.defined()) return {};
  counted_.copy_(own);
  return group_ == nullptr ? dist::Group::Sum() : group_->begin_sum(counted_);
}

// The mean loss of the batch; gradients are left in parameters_.
at::Tensor TrainingStep::accumulate_gradients() {
  parameters_.forget_gradients();
  const auto pieces = recipe_.accumulation;
  const auto images = inputs_.images.chunk(pieces), targets = inputs_.targets.chunk(pieces);
  const bool skips = inputs_.depth_factors.defined();
  const auto factors =
      skips ? inputs_.depth_factors.chunk(pieces, 1) : std::vector<at::Tensor>(images.size());
  std::optional<ops::GradientsBeside> beside;
  if (side_stream_) beside.emplace(*side_stream_);
  const auto join = [&] {
    if (beside) beside->join();
  };
  dist::Group::Sum count = begin_count();
  at::Tensor total;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const at::Tensor logits = model_.forward(images[i].to(parameters_.compute_type()),
                                             skips ? factors[i].contiguous() : at::Tensor());
    count.wait();
    const at::Tensor loss = loss_(logits, targets[i], {whole_batch_, counted_});
    const int place = static_cast<int>(2 * std::min<std::size_t>(i, kMostMeasuredPieces - 1));
    mark(place + 1);
    total = total.defined() ? total + loss.detach() : loss.detach();
    backward(loss, total, i + 1 == images.size(), join);
    mark(place + 2);
  }
  return group_ == nullptr ? total : shared_.select(0, 0);
}

void TrainingStep::add_seconds() {
  const auto pieces = static_cast<int>(std::min(recipe_.accumulation, kMostMeasuredPieces));
  for (int piece = 0; piece < pieces; ++piece) {
    seconds_->forward += runner_->seconds(2 * piece, 2 * piece + 1);
    seconds_->backward += runner_->seconds(2 * piece + 1, 2 * piece + 2);
  }
  seconds_->optimizer += runner_->seconds(2 * pieces, StepRunner::kMostMarks - 1);
}

// By name, each flat tensor as `map` gives it.
template <typename Map>
io::NamedTensors TrainingStep::named_state(const Map& map) const {
  io::NamedTensors state;
  add_group(state, "weights.", parameters_.views(map(parameters_.weights())));
  add_group(state, "mean.", parameters_.views(map(adam_.mean())));
  add_group(state, "square.", parameters_.views(map(adam_.square())));
  if (average_) add_group(state, "average.", parameters_.views(map(average_->value())));
  return state;
}

io::NamedTensors TrainingStep::state() const {
  return named_state([](const at::Tensor& flat) { return flat; });
}

std::vector<at::Tensor> TrainingStep::flat_state() const {
  std::vector<at::Tensor> flat{parameters_.weights(), adam_.mean(), adam_.square()};
  if (average_) flat.push_back(average_->value());
  return flat;
}

io::NamedTensors TrainingStep::snapshot() const {
  return named_state(
      [](const at::Tensor& flat) { return flat.is_cpu() ? flat.clone() : flat.cpu(); });
}

void TrainingStep::restored() {
  parameters_.publish_weights();
}

io::NamedTensors TrainingStep::weights_to_keep() const {
  return parameters_.views(average_ ? average_->value() : parameters_.weights());
}

}  // namespace sape2::train
