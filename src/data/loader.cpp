#include "sape2/data/loader.h"

#include "sape2/base/error.h"
#include "sape2/data/random.h"

#include "data/augment/draws.h"
#include "data/augment/plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace sape2::data {
namespace {

// The worker runs beside a training step that already uses every core: it gets one thread.
void use_one_thread() {
  at::internal::lazy_init_num_threads();
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
}

std::vector<std::int64_t> pass_order(std::int64_t count, std::int64_t epoch, std::int64_t pass,
                                     const LoaderOptions& options) {
  if (options.shuffle) {
    return shuffled(count, Draws(options.seed, static_cast<std::uint64_t>(epoch),
                                 static_cast<std::uint64_t>(pass), Purpose::order));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

std::vector<std::int64_t> epoch_order(std::int64_t count, std::int64_t epoch,
                                      const LoaderOptions& options) {
  std::vector<std::int64_t> order;
  for (std::int64_t pass = 0; pass < options.passes; ++pass) {
    const auto part = pass_order(count, epoch, pass, options);
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

void check(const Dataset& dataset, const LoaderOptions& options) {
  if (dataset.size() == 0) throw Error(fmt::format("the data set {} is empty", dataset.name));
  if (options.batch_size < 1) {
    throw Error(fmt::format("the batch size is {}, expected at least 1", options.batch_size));
  }
  if (options.drop_last && options.batch_size > dataset.size()) {
    throw Error(fmt::format("the batch size is {}, but {} has only {} images", options.batch_size,
                            dataset.name, dataset.size()));
  }
  if (options.passes < 1) {
    throw Error(fmt::format("an epoch has {} passes, expected at least 1", options.passes));
  }
  if (options.repeats < 1) {
    throw Error(fmt::format("repeated augmentation is {}, expected at least 1", options.repeats));
  }
  const BatchPart& part = options.part;
  if (part.index < 0 || part.index >= part.count || part.count > options.batch_size) {
    throw Error(
        fmt::format("a batch of {} images cannot be shared out over {} processes: each "
                    "needs at least one; use a larger batch or fewer processes",
                    options.batch_size, part.count));
  }
  if (options.prefetch < 0 || options.prefetch > 64) {
    throw Error(fmt::format("{} batches are to be made ahead, expected 0 … 64", options.prefetch));
  }
  check_augment_options(options.augment);
}

}  // namespace

struct Loader::State {
  // A batch that may still be in the making on the worker's stream.
  struct ReadyBatch {
    Batch batch;
    std::optional<c10::Event> made;
  };

  // Lets the current stream use what the worker's stream makes.
  static Batch handed_over(ReadyBatch ready) {
    if (ready.made) {
      const c10::impl::VirtualGuardImpl guard(ready.made->device_type());
      const c10::Stream stream = guard.getStream(ready.batch.images.device());
      ready.made->block(stream);
      for (const at::Tensor* tensor :
           {&ready.batch.images, &ready.batch.targets, &ready.batch.labels}) {
        if (tensor->defined()) tensor->record_stream(stream);
      }
    }
    return std::move(ready.batch);
  }

  Dataset dataset;  // on the loader's device
  LoaderOptions options;

  std::int64_t epoch = 0;
  std::int64_t next_step = 0;  // of the consumer
  std::vector<std::int64_t> order;

  std::thread worker;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<ReadyBatch> ready;
  std::exception_ptr failure;
  bool stopping = false;

  State(Dataset given, const LoaderOptions& with) : dataset(std::move(given)), options(with) {
    check(dataset, options);
    dataset.images = dataset.images.to(options.device);
    for (at::Tensor* tensor : {&dataset.labels, &dataset.masks}) {
      if (tensor->defined()) *tensor = tensor->to(options.device);
    }
    order = epoch_order(dataset.size(), epoch, options);
  }

  ~State() { stop(); }

  std::int64_t epoch_images() const { return dataset.size() * options.passes; }

  std::int64_t steps() const {
    const std::int64_t full = epoch_images() / options.batch_size;
    return full + (!options.drop_last && epoch_images() % options.batch_size > 0);
  }

  Batch make(std::int64_t of_epoch, std::int64_t step,
             const std::vector<std::int64_t>& in_order) const {
    const std::int64_t first = step * options.batch_size;
    const std::int64_t size = std::min(options.batch_size, epoch_images() - first);
    const std::int64_t begin = options.part.begin(size), end = options.part.end(size);
    BatchKey key{options.seed, static_cast<std::uint64_t>(of_epoch),
                 static_cast<std::uint64_t>(first)};
    Batch batch;
    const auto places = places_of_part(begin, end, size, options.augment.mix, key);
    if (options.part.count > 1) {
      key.places = places;
      key.batch = size;
    }
    std::vector<std::int64_t> sources;
    for (const std::int64_t place : places) {
      sources.push_back(in_order[static_cast<std::size_t>((first + place) / options.repeats)]);
    }
    batch.indices = at::tensor(sources, at::kLong);
    const bool on_cpu = options.device.is_cpu();
    const at::Tensor chosen = (on_cpu ? batch.indices : batch.indices.pin_memory())
                                  .to(options.device, /*non_blocking=*/true);
    if (dataset.target() == Target::masks) {
      MaskedBatch masked = augment_with_masks(dataset.images.index_select(0, chosen),
                                              dataset.masks.index_select(0, chosen),
                                              dataset.normalisation, options.augment, key);
      batch.images = std::move(masked.images);
      batch.targets = std::move(masked.masks);
      return batch;
    }
    batch.labels = dataset.labels.index_select(0, chosen);
    if (ops::can_augment(dataset.images)) {
      const auto plan =
          plan_batch(sources, dataset.height(), dataset.width(), options.augment, key);
      auto made = ops::augment(dataset.images, dataset.labels, plan,
                               augment_settings(dataset.channels(), dataset.classes(),
                                                dataset.normalisation, options.augment));
      batch.images = std::move(made.images);
      batch.targets = std::move(made.targets);
      return without_partners(std::move(batch), end - begin);
    }
    MixedBatch mixed = augment(dataset.images.index_select(0, chosen), batch.labels,
                               dataset.classes(), dataset.normalisation, options.augment, key);
    batch.images = std::move(mixed.images);
    batch.targets = std::move(mixed.targets);
    return without_partners(std::move(batch), end - begin);
  }

  // Images behind the part's own were made for mixing only.
  static Batch without_partners(Batch batch, std::int64_t own) {
    if (batch.images.size(0) == own) return batch;
    for (at::Tensor* tensor : {&batch.images, &batch.targets, &batch.labels, &batch.indices}) {
      *tensor = tensor->narrow(0, 0, own);
    }
    return batch;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    if (worker.joinable()) worker.join();
    stopping = false;
    ready.clear();
    failure = nullptr;
  }

  void launch() {
    worker = std::thread([this, step = next_step] { work(step); });
  }

  void work(std::int64_t first_step) {
    try {
      use_one_thread();
      const at::NoGradGuard no_gradients;
      // On a GPU, beside the training step and not in line with it.
      std::optional<c10::StreamGuard> stream;
      if (!options.device.is_cpu()) {
        const c10::impl::VirtualGuardImpl guard(options.device.type());
        stream.emplace(guard.getStreamFromGlobalPool(options.device));
      }
      for (std::int64_t step = first_step; step < steps(); ++step) {
        ReadyBatch batch{make(epoch, step, order), std::nullopt};
        if (stream) {
          batch.made.emplace(options.device.type());
          batch.made->record(stream->current_stream());
        }
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] {
          return stopping || static_cast<std::int64_t>(ready.size()) < options.prefetch;
        });
        if (stopping) return;
        ready.push_back(std::move(batch));
        changed.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      changed.notify_all();
    }
  }

  std::optional<Batch> take() {
    if (next_step >= steps()) return std::nullopt;
    if (options.prefetch == 0) return make(epoch, next_step++, order);
    if (!worker.joinable()) launch();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !ready.empty() || failure; });
    if (ready.empty()) std::rethrow_exception(failure);
    ReadyBatch batch = std::move(ready.front());
    ready.pop_front();
    ++next_step;
    changed.notify_all();
    lock.unlock();
    return handed_over(std::move(batch));
  }
};

Loader::Loader(Dataset dataset, const LoaderOptions& options)
    : state_(std::make_unique<State>(std::move(dataset), options)) {}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

std::int64_t Loader::steps() const {
  return state_->steps();
}

void Loader::start(std::int64_t epoch, std::int64_t step) {
  if (epoch < 0 || step < 0 || step > steps()) {
    throw Error(fmt::format("cannot start at epoch {}, step {}: an epoch has steps 0 … {}", epoch,
                            step, steps() - 1));
  }
  state_->stop();
  state_->epoch = epoch;
  state_->next_step = step;
  state_->order = epoch_order(state_->dataset.size(), epoch, state_->options);
  if (state_->options.prefetch > 0) state_->launch();
}

std::optional<Batch> Loader::next() {
  return state_->take();
}

Batch Loader::batch(std::int64_t epoch, std::int64_t step) const {
  if (epoch < 0 || step < 0 || step >= steps()) {
    throw Error(fmt::format("there is no step {} in epoch {}: an epoch has steps 0 … {}", step,
                            epoch, steps() - 1));
  }
  return state_->make(epoch, step, epoch_order(state_->dataset.size(), epoch, state_->options));
}

}  // namespace sape2::data
