#include "study/run_queue.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "study/peak_memory.h"
#include "study/team_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace sape2::study {
namespace fs = std::filesystem;
namespace {

constexpr const char* kResultName = "result.json";
// Between two looks at runs that other processes train.
constexpr auto kPause = std::chrono::milliseconds(500);

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

// Older runs hold paths as they were typed.
bool same_plan(train::RunConfig one, train::RunConfig other) {
  one.data = train::absolute_paths(one.data);
  other.data = train::absolute_paths(other.data);
  return train::fingerprint(one) == train::fingerprint(other);
}

void refuse_lost_checkpoints(const fs::path& folder) {
  try {
    train::RunFolder::open(folder).refuse_lost_checkpoints();
  } catch (const train::FolderInUse&) {
    return;  // whoever trains there has what it takes
  }
}

RunResult result_of(const train::RunFolder& folder, const train::RunSummary& summary) {
  const auto& last = summary.last;
  if (!last || !last->test) {
    throw Error("the log of " + in_quotes(folder.path()) +
                " lacks its last epoch; remove that folder to train it again");
  }
  const train::RunConfig& config = folder.config();
  return {.seed = config.seed,
          .figures = last->test->figures,
          .loss = last->test->loss,
          .best = summary.best,
          .seconds = summary.seconds,
          .images_per_second =
              training_rate(train::read_log(folder.log()), summary, config.recipe.batch_size),
          .peak_bytes = peak_memory(config.device)};
}

// The sentence without its advice, which is for somebody who trains this one model.
std::string reason_of(const train::Diverged& error) {
  const std::string sentence = error.what();
  return sentence.substr(0, sentence.find(';'));
}

}  // namespace

std::optional<RunOutcome> QueuedRun::outcome() const {
  return read_outcome(folder / kResultName, train::fingerprint(config));
}

// A mistake in the last of many runs must not show after hours: everything is checked first.
void RunQueue::check_folders(const std::vector<QueuedRun>& runs) const {
  for (const QueuedRun& run : runs) {
    if (!fs::exists(run.folder / "config.json")) continue;
    if (!same_plan(train::RunFolder::read_config(run.folder), run.config)) {
      throw Error(fmt::format(
          "the run in {} was begun with other data, model or recipe, or with other settings than "
          "the tuning chose; compare in another folder with --out, or remove that one",
          in_quotes(run.folder)));
    }
    if (!run.outcome() && !restart_) refuse_lost_checkpoints(run.folder);
  }
}

void RunQueue::restart_failed(const std::vector<QueuedRun>& runs) const {
  for (const QueuedRun& run : runs) {
    const auto outcome = run.outcome();
    if (!outcome || !outcome->failed()) continue;
    const auto aside = train::RunFolder::open(run.folder).restart();
    observer_.note("what the run had so far is now in " + aside.native());
  }
}

std::optional<RunOutcome> RunQueue::train(const QueuedRun& run,
                                          const std::function<void()>& begins) const {
  auto folder = train::RunFolder::open_or_create(run.folder, run.config);
  begins();
  // Somebody may have ended it between our last look and the lock.
  if (auto outcome = run.outcome()) return outcome;
  if (restart_ && folder.lost_checkpoints()) {
    observer_.note("what the run had so far is now in " + folder.restart().native());
  }
  folder.use_device(run.config.device);
  reset_peak_memory(run.config.device);
  RunOutcome outcome{.result = {.seed = run.config.seed}};
  // `folder` stays, and locked, until its result is written.
  try {
    const auto summary = train::train_in(folder, images_.of(run.config.data), observer_, stop_);
    if (!summary.finished) return std::nullopt;
    outcome.result = result_of(folder, summary);
  } catch (const train::Diverged& error) {
    outcome.failure = reason_of(error);
  }
  write_outcome(run.folder / kResultName, outcome, train::fingerprint(run.config));
  if (team_ != nullptr) team_->publish(run);
  return outcome;
}

std::optional<RunOutcome> RunQueue::known_outcome(const QueuedRun& run) const {
  auto outcome = run.outcome();
  if (team_ == nullptr) return outcome;
  if (outcome) {
    team_->publish(run);
    return outcome;
  }
  team_->fetch(run);
  return run.outcome();
}

bool RunQueue::run(const std::vector<QueuedRun>& runs, const Ended& ended) {
  check_folders(runs);
  if (restart_) restart_failed(runs);
  const auto total = static_cast<std::int64_t>(runs.size());
  std::vector<bool> done(runs.size(), false);
  for (bool first_round = true;; first_round = false) {
    std::int64_t elsewhere = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (done[i]) continue;
      const QueuedRun& run = runs[i];
      auto outcome = known_outcome(run);
      const bool had_result = outcome.has_value();
      const auto begins = [&] {
        observer_.run_begins(run.what, static_cast<std::int64_t>(i) + 1, total, had_result);
      };
      if (had_result) {
        begins();
      } else {
        if (stopped()) return false;
        if (team_ != nullptr && !team_->claim(run)) {
          ++elsewhere;
          continue;
        }
        try {
          outcome = train(run, begins);
        } catch (const train::FolderInUse&) {
          ++elsewhere;
          continue;
        }
        if (!outcome) return false;
      }
      done[i] = true;
      if (outcome->failed()) {
        observer_.run_failed(run.what, outcome->failure);
      } else {
        observer_.run_ended(run.what, outcome->result);
      }
      ended();
    }
    if (elsewhere == 0) return true;
    if (first_round) observer_.waits(elsewhere);
    if (stopped()) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace sape2::study
