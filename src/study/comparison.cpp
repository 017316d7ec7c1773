#include "sape2/study/comparison.h"

#include "sape2/error.h"
#include "sape2/in_quotes.h"
#include "sape2/nn/vit.h"
#include "sape2/study/comparison_report.h"
#include "sape2/train/device.h"

#include "study/peak_memory.h"
#include "study/run_result_file.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace sape2::study {
namespace fs = std::filesystem;
namespace {

// Brackets would have to be quoted in a shell.
std::string folder_name(const nn::EncodingSpec& encoding) {
  std::string name;
  for (const char c : encoding.to_string()) {
    if (c == '[') {
      name += '.';
    } else if (c != ']') {
      name += c;
    }
  }
  return name;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error("cannot make the folder " + in_quotes(folder) + ": " + error.message());
  }
}

// The median of the log's rates; of a run too short to have logged any, the mean over all of it.
double training_rate(const train::RunHistory& history, const train::RunSummary& summary,
                     std::int64_t batch_size) {
  std::vector<double> rates;
  for (const train::StepRecord& record : history.steps) rates.push_back(record.images_per_second);
  if (rates.empty()) return static_cast<double>(summary.step * batch_size) / summary.seconds;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  return *middle;
}

// What a trainer tells of one run, passed on under the comparison's lock.
class RunObserver : public train::Observer {
 public:
  RunObserver(const ComparisonRun& run, ComparisonObserver& to, std::mutex& lock)
      : run_(run), to_(to), lock_(lock) {}

  void step_done(const train::StepReport& report) override {
    const std::lock_guard held(lock_);
    to_.step_done(run_, report);
  }
  void epoch_done(const train::EpochRecord& record, std::int64_t epochs) override {
    const std::lock_guard held(lock_);
    to_.epoch_done(run_, record, epochs);
  }
  void note(const std::string& sentence) override {
    const std::lock_guard held(lock_);
    to_.note(run_, sentence);
  }

 private:
  const ComparisonRun& run_;
  ComparisonObserver& to_;
  std::mutex& lock_;
};

// Trains the runs of a plan, `jobs` of them at a time, each on a thread of its own.
class Session {
 public:
  Session(const ComparisonPlan& plan, const train::RunData& data, fs::path folder,
          ComparisonObserver& observer, const train::StopRequested& stop)
      : plan_(plan), data_(data), folder_(std::move(folder)), observer_(observer), stop_(stop) {}

  Comparison run();

 private:
  struct Task {
    ComparisonRun run;
    std::size_t row = 0;
    train::RunConfig config;
  };

  void list_tasks();
  fs::path folder_of(const train::RunConfig& config) const;
  void refuse_other_plans() const;
  void work();
  void do_task(Task& task);
  std::optional<RunResult> train_one(const Task& task, const fs::path& folder);
  void take_in(const Task& task, RunResult result);
  bool interrupted() const { return failed_ || (stop_ && stop_()); }

  const ComparisonPlan& plan_;
  const train::RunData& data_;
  fs::path folder_;
  ComparisonObserver& observer_;
  const train::StopRequested& stop_;

  std::vector<Task> tasks_;
  std::mutex lock_;  // of everything below, and of the observer
  std::size_t next_task_ = 0;
  Comparison comparison_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_ = false;
};

void Session::list_tasks() {
  const auto total = static_cast<std::int64_t>(plan_.rows.size()) * plan_.seeds;
  for (std::int64_t i = 0; i < plan_.seeds; ++i) {
    for (std::size_t row = 0; row < plan_.rows.size(); ++row) {
      train::RunConfig config = plan_.common;
      config.model.encoding = plan_.rows[row].encoding;
      config.seed = plan_.common.seed + static_cast<std::uint64_t>(i);
      config.validate();
      tasks_.push_back({.run = {.encoding = config.model.encoding,
                                .seed = config.seed,
                                .number = static_cast<std::int64_t>(tasks_.size()) + 1,
                                .total = total},
                        .row = row,
                        .config = config});
    }
  }
}

fs::path Session::folder_of(const train::RunConfig& config) const {
  return folder_ / "runs" / folder_name(config.model.encoding) /
         fmt::format("seed-{}", config.seed);
}

// A mistake in the last of many runs must not show after hours: everything is checked first.
void Session::refuse_other_plans() const {
  if (plan_.jobs > 1 && train::device_named(plan_.common.device).is_cpu()) {
    throw Error(
        fmt::format("{} runs side by side need a GPU (--device cuda): on the CPU one run "
                    "uses every core",
                    plan_.jobs));
  }
  for (const Task& task : tasks_) {
    const fs::path folder = folder_of(task.config);
    if (!fs::exists(folder / "config.json")) continue;
    const auto present = train::RunFolder::open(folder).config();
    if (train::fingerprint(present) == train::fingerprint(task.config)) continue;
    throw Error(fmt::format(
        "the run in {} was begun with other data, model or recipe; compare in another folder "
        "with --out, or remove that one",
        in_quotes(folder)));
  }
}

std::optional<RunResult> Session::train_one(const Task& task, const fs::path& folder) {
  const train::RunConfig& config = task.config;
  // Runs side by side share one memory; whose the peak is cannot be told.
  const bool alone = plan_.jobs == 1;
  if (alone) reset_peak_memory(config.device);
  auto run_folder = fs::exists(folder / "config.json") ? train::RunFolder::open(folder)
                                                       : train::RunFolder::create(folder, config);
  const fs::path log = run_folder.log();
  RunObserver observer(task.run, observer_, lock_);
  const train::RunSummary summary =
      train::train_in(std::move(run_folder), data_, observer, [this] { return interrupted(); });
  if (!summary.finished) return std::nullopt;
  const auto& last = summary.last;
  if (!last || !last->test) {
    throw Error("the log of " + in_quotes(folder) +
                " lacks its last epoch; remove that folder to train it again");
  }
  RunResult result{
      .seed = config.seed,
      .top1 = last->test->top1,
      .top5 = last->test->top5,
      .loss = last->test->loss,
      .best_top1 = summary.best_top1,
      .seconds = summary.seconds,
      .images_per_second = training_rate(train::read_log(log), summary, config.recipe.batch_size),
      .peak_bytes = alone ? peak_memory(config.device) : 0};
  write_result(folder / "result.json", result, train::fingerprint(config));
  return result;
}

void Session::take_in(const Task& task, RunResult result) {
  const std::lock_guard held(lock_);
  observer_.run_ended(task.run, result);
  auto& runs = comparison_.rows[task.row].runs;
  runs.push_back(std::move(result));
  std::ranges::sort(runs, {}, &RunResult::seed);
  std::size_t done = 0;
  for (const RowResult& row : comparison_.rows) done += row.runs.size();
  comparison_.finished = done == tasks_.size();
  write_reports(comparison_, folder_);
}

void Session::do_task(Task& task) {
  const fs::path folder = folder_of(task.config);
  auto result = read_result(folder / "result.json", train::fingerprint(task.config));
  task.run.reused = result.has_value();
  {
    const std::lock_guard held(lock_);
    observer_.run_begins(task.run);
  }
  if (!result) result = train_one(task, folder);
  if (!result) return;
  result->epochs = train::read_log(folder / "log.jsonl").epochs;
  take_in(task, std::move(*result));
}

void Session::work() {
  try {
    // On one stream, runs would wait for each other.
    std::optional<c10::StreamGuard> stream;
    if (plan_.jobs > 1) {
      const c10::Device device = train::device_named(plan_.common.device);
      const c10::impl::VirtualGuardImpl guard(device.type());
      stream.emplace(guard.getStreamFromGlobalPool(device));
    }
    for (;;) {
      Task* task = nullptr;
      {
        const std::lock_guard held(lock_);
        if (next_task_ == tasks_.size() || interrupted()) return;
        task = &tasks_[next_task_++];
      }
      do_task(*task);
    }
  } catch (...) {
    const std::lock_guard held(lock_);
    if (!failure_) failure_ = std::current_exception();
    failed_ = true;  // the others save what they have and end
  }
}

Comparison Session::run() {
  list_tasks();
  make_folder(folder_);
  refuse_other_plans();
  comparison_ = {plan_, {}, false};
  for (const ComparisonRow& row : plan_.rows) {
    train::RunConfig config = plan_.common;
    config.model.encoding = row.encoding;
    comparison_.rows.push_back({row, nn::parameter_count(config.model)});
  }
  if (plan_.jobs == 1) {
    work();
  } else {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 0; i < plan_.jobs; ++i) threads.emplace_back([this] { work(); });
  }
  if (failure_) std::rethrow_exception(failure_);
  write_reports(comparison_, folder_);
  return std::move(comparison_);
}

}  // namespace

Comparison run_comparison(const ComparisonPlan& plan, const train::RunData& data,
                          const fs::path& folder, ComparisonObserver& observer,
                          const train::StopRequested& stop) {
  return Session(plan, data, folder, observer, stop).run();
}

}  // namespace sape2::study
