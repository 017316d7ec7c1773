#include "sape2/train/trainer.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/dataset.h"
#include "sape2/dist/group.h"
#include "sape2/io/atomic_file.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"
#include "sape2/train/device.h"
#include "sape2/train/schedule.h"
#include "sape2/train/task.h"
#include "sape2/train/training_step.h"

#include "train/append_file.h"
#include "train/background_job.h"
#include "train/checkpoint.h"
#include "train/checkpoint_pace.h"
#include "train/curves.h"
#include "train/event_file.h"
#include "train/initial_weights.h"
#include "train/replicas.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sape2::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// `begins`: the run has no checkpoint yet that weights come from.
std::shared_ptr<nn::ViT> build_model(const RunConfig& config, c10::Device device, bool begins,
                                     Observer& observer) {
  using Kind = nn::Initialisation::Kind;
  auto model = std::make_shared<nn::ViT>(
      config.model, nn::Initialisation{.kind = Kind::random, .seed = config.seed});
  if (begins && !config.init.empty()) {
    for (const std::string& sentence : start_from_file(*model, config)) observer.note(sentence);
  }
  model->to(device);
  return model;
}

std::shared_ptr<nn::ViT> build_outline(const RunConfig& config, c10::Device device) {
  using Kind = nn::Initialisation::Kind;
  auto model = std::make_shared<nn::ViT>(
      config.model, nn::Initialisation{.kind = Kind::uninitialised, .seed = 0});
  model->to(device);
  model->eval();
  return model;
}

void add_test(Scalars& scalars, const TestRecord& test) {
  scalars.emplace_back("epoch/test_loss", test.loss);
  for (const Figure& figure : test.figures) {
    scalars.emplace_back("epoch/" + figure.key, figure.value);
  }
}

void set_aside(const fs::path& checkpoint) {
  std::error_code error;
  fs::rename(checkpoint, checkpoint.native() + ".refused", error);
  if (error) throw Error("cannot rename " + in_quotes(checkpoint) + ": " + error.message());
}

// The log as it was at that step: lines of steps that will be done again are dropped.
RunHistory cut_log(const fs::path& file, int64_t step) {
  RunHistory history = read_log(file);
  std::erase_if(history.steps, [&](const StepRecord& record) { return record.step > step; });
  std::erase_if(history.epochs, [&](const EpochRecord& record) { return record.step > step; });
  io::AtomicFile rewritten(file);
  if (history.start) rewritten.write(to_json_line(*history.start));
  auto epoch = history.epochs.begin();
  for (const StepRecord& record : history.steps) {
    for (; epoch != history.epochs.end() && epoch->step < record.step; ++epoch) {
      rewritten.write(to_json_line(*epoch));
    }
    rewritten.write(to_json_line(record));
  }
  for (; epoch != history.epochs.end(); ++epoch) rewritten.write(to_json_line(*epoch));
  rewritten.commit();
  return history;
}

}  // namespace

struct Trainer::State {
  State(RunFolder run_folder, BatchSource& batches, const data::Dataset& test_images,
        Observer& watcher, dist::Group* processes);

  RunSummary run(const StopRequested& stop);

  // A step whose loss may still be on its way from the GPU.
  struct Pending {
    int64_t step;
    double learning_rate;
    TrainingStep::Outcome outcome;
  };

  void restore();
  void restore_from_folder();
  void test_start();
  void do_step();
  void settle();
  [[noreturn]] void stop_at_bad_loss(const Pending& step, double loss) const;
  void end_interval();
  void end_epoch();
  TestRecord tested(int64_t epoch, dist::Group* together) const;
  void keep_record(const EpochRecord& record);
  void keep_model(const EpochRecord& record);
  void save_last();
  void save_checkpoint();
  double total_seconds() const { return seconds_before + seconds_since(session_start); }
  int64_t epoch_of(int64_t step) const { return (step - 1) / source.steps_per_epoch() + 1; }

  template <typename Write>
  void saving(const Write& write) const;

  RunFolder folder;
  const RunConfig& config = folder.config();
  const Task& task = task_named(config.model.task);
  BatchSource& source;
  const data::Dataset& test;
  Observer& observer;
  dist::Group* group;  // nullptr: this process is alone
  const bool writes = !folder.is_elsewhere();

  c10::Device device;
  Schedule schedule;
  std::shared_ptr<nn::ViT> model;     // in training
  std::shared_ptr<nn::ViT> keepsake;  // the weights to keep, for evaluation and model files
  TrainingStep training;
  Progress progress;
  RunHistory history;
  std::unique_ptr<AppendFile> log;
  std::unique_ptr<EventFile> events;

  BackgroundJob saver;

  std::vector<Pending> pending;
  bool agreed_to_stop = false;
  double last_norm = 0, last_rate = 0;
  Clock::time_point session_start, interval_start;
  CheckpointPace pace{Clock::now()};
  double seconds_before = 0;
  int64_t session_first_step = 0;
  int64_t interval_first_step = 0;
};

Trainer::State::State(RunFolder run_folder, BatchSource& batches, const data::Dataset& test_images,
                      Observer& watcher, dist::Group* processes)
    : folder(std::move(run_folder)),
      source(batches),
      test(test_images),
      observer(watcher),
      group(processes),
      device(device_named(config.device)),
      schedule(config.recipe, batches.steps_per_epoch()),
      model(build_model(config, device, writes && folder.checkpoints().empty(), observer)),
      keepsake(build_outline(config, device)),
      training(*model, config.recipe, config.seed, group) {
  restore();
}

void Trainer::State::restore() {
  if (writes) restore_from_folder();
  if (group != nullptr) share_state(*group, training, progress);
}

// Weights, optimiser and log as they were at the newest checkpoint that can be used.
void Trainer::State::restore_from_folder() {
  for (const fs::path& file : folder.checkpoints()) {
    try {
      progress = read_checkpoint(file, training.state(), fingerprint(config));
    } catch (const DamagedCheckpoint& error) {
      observer.note(error.what());
      // Out of the way, so that it does not count as one of the two that are kept.
      set_aside(file);
      continue;
    } catch (const Error& error) {
      // The file may be as good as ever, once config.json or its permissions are as they were.
      throw Error(fmt::format(
          "{}; mend that and run the same command again, or move that file away", error.what()));
    }
    training.restored();
    observer.note(fmt::format("going on after step {} of {}, from {}", progress.step,
                              schedule.steps(), file.native()));
    break;
  }
  if (progress.step == 0) folder.refuse_lost_checkpoints();
  saving([&] { history = cut_log(folder.log(), progress.step); });
}

template <typename Write>
void Trainer::State::saving(const Write& write) const {
  try {
    write();
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}; what was saved before is intact: mend that and go on with "
                    "`sape2 train --resume {}`",
                    error.what(), folder.path().native()));
  }
}

RunSummary Trainer::State::run(const StopRequested& stop) {
  session_start = interval_start = Clock::now();
  pace = CheckpointPace(session_start);
  seconds_before = progress.seconds;
  session_first_step = interval_first_step = progress.step;
  if (writes) {
    saving([&] {
      log = std::make_unique<AppendFile>(folder.log());
      events = std::make_unique<EventFile>(folder.path(), progress.step);
    });
    if (progress.step == 0 && !config.init.empty()) test_start();
  }
  bool stopped = false;
  while (progress.step < schedule.steps() && !stopped) {
    if (group != nullptr) training.vote_to_stop(stop && stop());
    do_step();
    const bool epoch_ends = progress.step % source.steps_per_epoch() == 0;
    const int64_t every = config.recipe.checkpoint_steps;
    const bool checkpoint_due = every > 0 && progress.step % every == 0;
    // Processes end after the same step: the one whose outcome tells them.
    const bool asked = group != nullptr ? agreed_to_stop : stop && stop();
    stopped = asked && progress.step < schedule.steps();
    if (progress.step % config.recipe.log_steps == 0) end_interval();
    if (epoch_ends) end_epoch();
    if (!writes) {
      if (checkpoint_due) settle();  // as rank 0 does, so that all learn of a stop alike
      continue;
    }
    if (stopped) save_last();
    const bool ends = stopped || progress.step == schedule.steps();
    if (ends || checkpoint_due || (epoch_ends && pace.pays(Clock::now()))) save_checkpoint();
  }
  saving([&] { saver.finish(); });
  RunSummary summary{.finished = !stopped,
                     .step = progress.step,
                     .steps = schedule.steps(),
                     .best = progress.best,
                     .last = std::nullopt,
                     .seconds = total_seconds(),
                     .checkpoint_share = pace.seconds() / seconds_since(session_start)};
  if (!history.epochs.empty()) summary.last = history.epochs.back();
  return summary;
}

// What a trained model can do before its first step. The checkpoint comes first: from then on the
// run does not need the file that it started from.
void Trainer::State::test_start() {
  if (folder.checkpoints().empty()) save_checkpoint();
  if (!history.start) {
    copy_weights(training.weights_to_keep(), *keepsake);
    const TestRecord start = tested(0, nullptr);  // the log may have it, which rank 0 alone sees
    history.start = start;
    saving([&] {
      log->append(to_json_line(start));
      Scalars scalars;
      add_test(scalars, start);
      events->add(0, scalars);
      keep_model({.epoch = 0, .step = 0, .train_loss = 0, .test = start, .seconds = 0});
    });
    observer.start_tested(start);
  }
  progress.best = std::max(progress.best, main_figure(history.start->figures));
  interval_start = Clock::now();
}

void Trainer::State::do_step() {
  const int64_t epoch = progress.step / source.steps_per_epoch();
  const Batch batch = source.batch(epoch, progress.step % source.steps_per_epoch());
  const double rate = schedule.learning_rate(progress.step);
  pending.push_back({progress.step + 1, rate, training.run(batch, rate, progress.step)});
  ++progress.step;
  // A GPU is asked for its losses only now and then, as it would have to wait.
  if (device.is_cpu()) settle();
}

// Takes in the losses that are due, all in one copy.
void Trainer::State::settle() {
  if (pending.empty()) return;
  std::vector<at::Tensor> outcomes;
  for (const Pending& step : pending) outcomes.push_back(step.outcome.numbers);
  const at::Tensor on_host = at::stack(outcomes).cpu();
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const Pending& step = pending[i];
    const TrainingStep::Outcome outcome{on_host.select(0, static_cast<int64_t>(i))};
    const double loss = outcome.loss();
    last_norm = outcome.gradient_norm();
    agreed_to_stop = agreed_to_stop || outcome.stops();
    last_rate = step.learning_rate;
    if (!std::isfinite(loss) || !std::isfinite(last_norm)) stop_at_bad_loss(step, loss);
    progress.epoch_loss += loss;
    progress.interval_loss += loss;
    const double elapsed = seconds_since(session_start);
    const auto done = static_cast<double>(step.step - session_first_step);
    const auto since = static_cast<double>(step.step - interval_first_step);
    const auto images = static_cast<double>(source.images_per_step());
    observer.step_done(
        {.epoch = epoch_of(step.step),
         .epochs = config.recipe.epochs,
         .step = step.step,
         .steps = schedule.steps(),
         .loss = loss,
         .learning_rate = step.learning_rate,
         .images_per_second = since * images / seconds_since(interval_start),
         .seconds_left = elapsed / done * static_cast<double>(schedule.steps() - step.step)});
  }
  pending.clear();
}

void Trainer::State::stop_at_bad_loss(const Pending& step, double loss) const {
  const char* what = std::isfinite(loss) ? "gradient" : "loss";
  throw Diverged(fmt::format(
      "the {} is not a finite number at step {} (epoch {}), learning rate {:.3g}; try a lower "
      "--learning-rate, longer --warmup-epochs or --clip-norm 1 in a new run",
      what, step.step, epoch_of(step.step), step.learning_rate));
}

void Trainer::State::end_interval() {
  settle();
  const auto steps = static_cast<double>(progress.step - interval_first_step);
  const auto images = static_cast<double>(source.images_per_step());
  const StepRecord record{
      .epoch = epoch_of(progress.step),
      .step = progress.step,
      .loss = progress.interval_loss / static_cast<double>(config.recipe.log_steps),
      .learning_rate = last_rate,
      .gradient_norm = last_norm,
      .images_per_second = steps * images / seconds_since(interval_start),
      .seconds = total_seconds()};
  if (writes) {
    saving([&] {
      log->append(to_json_line(record));
      events->add(record.step, {{"train/loss", record.loss},
                                {"train/learning_rate", record.learning_rate},
                                {"train/gradient_norm", record.gradient_norm},
                                {"train/images_per_second", record.images_per_second}});
    });
  }
  history.steps.push_back(record);
  progress.interval_loss = 0;
  interval_first_step = progress.step;
  interval_start = Clock::now();
}

void Trainer::State::end_epoch() {
  settle();
  const auto pause = Clock::now();
  EpochRecord record{
      .epoch = epoch_of(progress.step),
      .step = progress.step,
      .train_loss = progress.epoch_loss / static_cast<double>(source.steps_per_epoch()),
      .test = std::nullopt,
      .seconds = 0};
  progress.epoch_loss = 0;
  const bool last = progress.step == schedule.steps();
  if (last || record.epoch % config.recipe.evaluate_epochs == 0) {
    copy_weights(training.weights_to_keep(), *keepsake);
    record.test = tested(record.epoch, group);
  }
  if (group != nullptr) check_replicas(*group, training, record.epoch);
  record.seconds = total_seconds();
  history.epochs.push_back(record);
  if (writes) keep_record(record);
  observer.epoch_done(record, config.recipe.epochs);
  interval_start += Clock::now() - pause;
}

void Trainer::State::keep_record(const EpochRecord& record) {
  saving([&] {
    log->append(to_json_line(record));
    Scalars scalars{{"epoch/train_loss", record.train_loss}};
    if (record.test) {
      add_test(scalars, *record.test);
    }
    events->add(record.step, scalars);
    if (record.test) keep_model(record);
  });
}

TestRecord Trainer::State::tested(int64_t epoch, dist::Group* together) const {
  try {
    const Measured result = task.measure(*keepsake, test, {.group = together});
    return {result.loss, result.figures};
  } catch (const NotFinite& error) {
    throw Diverged(fmt::format("after epoch {}: {}", epoch, error.what()));
  }
}

// `keepsake` holds the weights that were just evaluated.
void Trainer::State::keep_model(const EpochRecord& record) {
  const double reached = main_figure(record.test->figures);
  const io::SaveModelOptions options{
      .extra = {{"train_epoch", std::to_string(record.epoch)},
                {"train_step", std::to_string(record.step)},
                {"train_weights", training.averages() ? "averaged" : "raw"},
                {"train_" + task.figures().front().key, fmt::format("{}", reached)}}};
  if (reached > progress.best) {
    io::save_model(folder.best(), *keepsake, options);
    progress.best = reached;
  }
  io::save_model(folder.last(), *keepsake, options);
}

void Trainer::State::save_last() {
  copy_weights(training.weights_to_keep(), *keepsake);
  const io::SaveModelOptions options{
      .extra = {{"train_step", std::to_string(progress.step)},
                {"train_weights", training.averages() ? "averaged" : "raw"}}};
  saving([&] { io::save_model(folder.last(), *keepsake, options); });
}

// Written beside the training, which goes on with the next step.
void Trainer::State::save_checkpoint() {
  settle();
  const auto begin = Clock::now();
  progress.seconds = total_seconds();
  saving([&] {
    log->sync();
    saver.start([this, tensors = training.snapshot(), now = progress, so_far = history] {
      write_checkpoint(folder.checkpoint(now.step), tensors, now, fingerprint(config));
      folder.keep_newest_checkpoints();
      draw_curves(so_far, config.data.name + ", " + config.model.encoding.to_string(),
                  folder.curves());
    });
  });
  pace.saved(begin, Clock::now());
}

Trainer::Trainer(RunFolder folder, BatchSource& source, const data::Dataset& test,
                 Observer& observer, dist::Group* group)
    : state_(std::make_unique<State>(std::move(folder), source, test, observer, group)) {}

Trainer::~Trainer() = default;

RunSummary Trainer::run(const StopRequested& stop) {
  return state_->run(stop);
}

}  // namespace sape2::train
