#include "sape2/study/comparison_merge.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/study/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

// Written as text and read again, a figure may be off by its last digit.
bool same_figure(double one, double other) {
  return std::abs(one - other) <= 1e-9 * std::max(1.0, std::abs(one));
}

bool same_result(const RunResult& one, const RunResult& other) {
  return std::ranges::equal(one.figures, other.figures,
                            [](const train::Figure& mine, const train::Figure& theirs) {
                              return mine.key == theirs.key &&
                                     same_figure(mine.value, theirs.value);
                            }) &&
         same_figure(one.loss, other.loss);
}

bool same_trial(const Trial& one, const Trial& other) {
  return one.failure == other.failure && same_figure(one.score, other.score) &&
         same_figure(one.loss, other.loss);
}

bool same_tuning(const std::optional<TuningPlan>& one, const std::optional<TuningPlan>& other) {
  if (!one || !other) return !one && !other;
  return one->grid() == other->grid() && one->epochs == other->epochs &&
         one->held_out == other->held_out;
}

class Merge {
 public:
  explicit Merge(const NamedComparison& first) : name_(first.name), whole_(first.comparison) {}

  void add(const NamedComparison& part);
  Comparison result();

 private:
  void refuse_other_plan(const NamedComparison& part) const;
  void add_row(const RowResult& row, const std::string& from);
  static void add_runs(RowResult& row, const RowResult& more, const std::string& who);
  static void add_trials(RowResult& row, const RowResult& more, const std::string& who);
  bool is_complete() const;

  std::string name_;
  Comparison whole_;
  bool all_finished_ = true;
};

void Merge::refuse_other_plan(const NamedComparison& part) const {
  const auto differs = [&](const std::string& what) {
    return Error(
        fmt::format("{} and {} have {}; only runs that differ in encoding and seed alone "
                    "belong into one table",
                    in_quotes(name_), in_quotes(part.name), what));
  };
  const train::RunConfig &one = whole_.plan.common, &other = part.comparison.plan.common;
  // Where the data lay is a matter of the machine.
  train::DataConfig data = one.data, other_data = other.data;
  data.root = other_data.root = "";
  if (data != other_data) throw differs("other data");
  nn::ModelConfig model = one.model, other_model = other.model;
  other_model.encoding = model.encoding;
  if (model != other_model) throw differs("other models");
  if (one.recipe != other.recipe) throw differs("other recipes");
  if (one.init.empty() != other.init.empty() || one.init_checksum != other.init_checksum) {
    throw differs("other models to start from");
  }
  if (!same_tuning(whole_.plan.tuning, part.comparison.plan.tuning)) throw differs("other tunings");
}

void Merge::add_runs(RowResult& row, const RowResult& more, const std::string& who) {
  for (const RunResult& run : more.runs) {
    const auto mine = std::ranges::find(row.runs, run.seed, &RunResult::seed);
    const bool mine_failed =
        std::ranges::find(row.failed, run.seed, &FailedRun::seed) != row.failed.end();
    if (mine == row.runs.end() && !mine_failed) {
      row.runs.push_back(run);
    } else if (mine_failed || !same_result(*mine, run)) {
      throw Error(fmt::format(
          "{} for {}, seed {}: {:.2f} % instead of {}; leave one of the files out, or remove that "
          "run from it",
          who, row.row.encoding.to_string(), run.seed, 100 * run.score(),
          mine_failed ? "diverging" : fmt::format("{:.2f} %", 100 * mine->score())));
    }
  }
  for (const FailedRun& run : more.failed) {
    if (std::ranges::find(row.runs, run.seed, &RunResult::seed) != row.runs.end()) {
      throw Error(
          fmt::format("{} for {}, seed {}: it diverged; leave one of the files out, or remove that "
                      "run from it",
                      who, row.row.encoding.to_string(), run.seed));
    }
    if (std::ranges::find(row.failed, run.seed, &FailedRun::seed) == row.failed.end()) {
      row.failed.push_back(run);
    }
  }
  std::ranges::sort(row.runs, {}, &RunResult::seed);
  std::ranges::sort(row.failed, {}, &FailedRun::seed);
}

void Merge::add_trials(RowResult& row, const RowResult& more, const std::string& who) {
  for (const Trial& trial : more.trials) {
    const auto mine = std::ranges::find(row.trials, trial.settings, &Trial::settings);
    if (mine == row.trials.end()) {
      row.trials.push_back(trial);
    } else if (!same_trial(*mine, trial)) {
      throw Error(fmt::format("{} for the tuning of {} with {}; leave one of the files out", who,
                              row.row.encoding.to_string(), to_string(trial.settings)));
    }
  }
  if (row.chosen.empty()) row.chosen = more.chosen;
  if (!more.chosen.empty() && more.chosen != row.chosen) {
    throw Error(fmt::format("{} for the tuning of {}: {} instead of {}; leave one of the files out",
                            who, row.row.encoding.to_string(), to_string(more.chosen),
                            to_string(row.chosen)));
  }
}

void Merge::add_row(const RowResult& row, const std::string& from) {
  const auto mine = std::ranges::find_if(whole_.rows, [&](const RowResult& candidate) {
    return candidate.row.encoding == row.row.encoding;
  });
  if (mine == whole_.rows.end()) {
    whole_.rows.push_back(row);
    whole_.plan.rows.push_back(row.row);
    return;
  }
  const std::string who =
      fmt::format("{} has another result than the files before it", in_quotes(from));
  add_trials(*mine, row, who);
  add_runs(*mine, row, who);
}

void Merge::add(const NamedComparison& part) {
  refuse_other_plan(part);
  for (const RowResult& row : part.comparison.rows) add_row(row, part.name);
  for (const std::uint64_t seed : part.comparison.plan.seeds) {
    auto& seeds = whole_.plan.seeds;
    if (std::ranges::find(seeds, seed) == seeds.end()) seeds.push_back(seed);
  }
  if (!whole_.plan.baseline) whole_.plan.baseline = part.comparison.plan.baseline;
  all_finished_ = all_finished_ && part.comparison.finished;
}

bool Merge::is_complete() const {
  return std::ranges::all_of(whole_.rows, [&](const RowResult& row) {
    return row.runs.size() + row.failed.size() == whole_.plan.seeds.size();
  });
}

// Some rows may have been meant to have fewer seeds than others.
Comparison Merge::result() {
  whole_.finished = (whole_.finished && all_finished_) || is_complete();
  return std::move(whole_);
}

}  // namespace

Comparison merge_comparisons(const std::vector<NamedComparison>& parts) {
  if (parts.empty()) throw Error("there is nothing to merge; name at least two results.json");
  Merge merge(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) merge.add(parts[i]);
  return merge.result();
}

}  // namespace sape2::study
