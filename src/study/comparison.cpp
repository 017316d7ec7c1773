#include "sape2/study/comparison.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/folder_lock.h"
#include "sape2/nn/vit.h"
#include "sape2/study/comparison_report.h"
#include "sape2/train/device.h"

#include "study/run_queue.h"
#include "study/team_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

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

std::string folder_name(const Settings& settings) {
  std::string name;
  for (const Setting& setting : settings) {
    name += (name.empty() ? "" : ",") + setting.key + "=" + train::to_string(setting.value);
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

class Session {
 public:
  Session(const ComparisonPlan& plan, const data::Dataset& training, fs::path folder,
          ComparisonObserver& observer, const train::StopRequested& stop, dist::Team* team)
      : plan_(plan),
        folder_(std::move(folder)),
        images_(training),
        team_(team == nullptr ? nullptr : std::make_unique<TeamQueue>(*team)),
        queue_(images_, observer, stop, plan.restart, team_.get()) {}

  Comparison run();

 private:
  train::RunConfig config_of(const ComparisonRow& row, std::uint64_t seed) const;
  QueuedRun trial(const ComparisonRow& row, const Settings& settings) const;
  QueuedRun final_run(const RowResult& row, std::uint64_t seed) const;
  std::vector<QueuedRun> all_trials() const;
  std::vector<QueuedRun> all_runs(const Comparison& comparison) const;
  void collect_trials(RowResult& row) const;
  void collect_runs(RowResult& row) const;
  Comparison collect() const;
  void report() const;

  const ComparisonPlan& plan_;
  fs::path folder_;
  RunImages images_;
  std::unique_ptr<TeamQueue> team_;
  RunQueue queue_;
  std::vector<std::int64_t> parameters_;  // of each row
};

train::RunConfig Session::config_of(const ComparisonRow& row, std::uint64_t seed) const {
  train::RunConfig config = plan_.common;
  config.model.encoding = row.encoding;
  config.seed = seed;
  if (!plan_.device.empty()) config.device = plan_.device;
  config.validate();
  return config;
}

QueuedRun Session::trial(const ComparisonRow& row, const Settings& settings) const {
  return {fmt::format("tuning {}, {}", row.encoding.to_string(), to_string(settings)),
          trial_config(config_of(row, plan_.seeds.front()), settings, *plan_.tuning),
          folder_ / "tuning" / folder_name(row.encoding) / folder_name(settings)};
}

QueuedRun Session::final_run(const RowResult& row, std::uint64_t seed) const {
  auto config = with_settings(config_of(row.row, seed), row.chosen);
  config.validate();
  return {fmt::format("{}, seed {}", row.row.encoding.to_string(), seed), config,
          folder_ / "runs" / folder_name(row.row.encoding) / fmt::format("seed-{}", seed)};
}

std::vector<QueuedRun> Session::all_trials() const {
  std::vector<QueuedRun> trials;
  if (!plan_.tuning) return trials;
  for (const ComparisonRow& row : plan_.rows) {
    for (const Settings& settings : plan_.tuning->grid()) trials.push_back(trial(row, settings));
  }
  return trials;
}

// Seed by seed, so that a comparison cut short has all rows.
std::vector<QueuedRun> Session::all_runs(const Comparison& comparison) const {
  std::vector<QueuedRun> runs;
  for (const std::uint64_t seed : plan_.seeds) {
    for (const RowResult& row : comparison.rows) {
      // Where every trial diverged, there is nothing to train with.
      if (plan_.tuning && row.chosen.empty()) continue;
      runs.push_back(final_run(row, seed));
    }
  }
  return runs;
}

void Session::collect_trials(RowResult& row) const {
  if (!plan_.tuning) return;
  const auto grid = plan_.tuning->grid();
  for (const Settings& settings : grid) {
    const auto outcome = trial(row.row, settings).outcome();
    if (!outcome) continue;
    row.trials.push_back(
        {settings, outcome->result.score(), outcome->result.loss, outcome->failure});
  }
  if (row.trials.size() < grid.size()) return;
  if (const auto best = best_trial(row.trials)) row.chosen = row.trials[*best].settings;
}

void Session::collect_runs(RowResult& row) const {
  if (plan_.tuning && row.chosen.empty()) return;
  for (const std::uint64_t seed : plan_.seeds) {
    const QueuedRun run = final_run(row, seed);
    auto outcome = run.outcome();
    if (!outcome) continue;
    if (outcome->failed()) {
      row.failed.push_back({seed, outcome->failure});
      continue;
    }
    train::RunHistory history = train::read_log(run.folder / "log.jsonl");
    outcome->result.epochs = std::move(history.epochs);
    outcome->result.start = history.start;
    row.runs.push_back(std::move(outcome->result));
  }
}

// All that is on the disk, whoever trained it.
Comparison Session::collect() const {
  Comparison comparison{plan_, {}, true};
  const std::size_t trials = plan_.tuning ? plan_.tuning->grid().size() : 0;
  for (std::size_t i = 0; i < plan_.rows.size(); ++i) {
    RowResult row{.row = plan_.rows[i], .parameters = parameters_[i]};
    collect_trials(row);
    collect_runs(row);
    const bool nothing_to_run = plan_.tuning && row.chosen.empty() && row.trials.size() == trials;
    const bool all_ended = row.runs.size() + row.failed.size() == plan_.seeds.size();
    comparison.finished = comparison.finished && (nothing_to_run || all_ended);
    comparison.rows.push_back(std::move(row));
  }
  return comparison;
}

// One process at a time, so that no older state is written over a newer one.
void Session::report() const {
  const auto lock = io::FolderLock::await(folder_);
  write_reports(collect(), folder_);
}

Comparison Session::run() {
  for (const ComparisonRow& row : plan_.rows) {
    const auto config = config_of(row, plan_.seeds.front());
    parameters_.push_back(nn::parameter_count(config.model));
  }
  const auto trials = all_trials();
  train::device_named(config_of(plan_.rows.front(), plan_.seeds.front()).device);
  make_folder(folder_);
  const auto write = [this] { report(); };
  if (queue_.run(trials, write)) queue_.run(all_runs(collect()), write);
  report();
  return collect();
}

}  // namespace

std::vector<std::uint64_t> seeds_from(std::uint64_t first, std::int64_t count) {
  std::vector<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < count; ++i) seeds.push_back(first + static_cast<std::uint64_t>(i));
  return seeds;
}

Comparison run_comparison(const ComparisonPlan& plan, const data::Dataset& training,
                          const fs::path& folder, ComparisonObserver& observer,
                          const train::StopRequested& stop, dist::Team* team) {
  return Session(plan, training, folder, observer, stop, team).run();
}

}  // namespace sape2::study
