#include "sape2/study/comparison.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/nn/vit.h"
#include "sape2/study/comparison_report.h"
#include "sape2/train/device.h"

#include "study/peak_memory.h"
#include "study/run_result_file.h"

#include <fmt/format.h>

#include <algorithm>

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

// Older runs hold paths as they were typed.
bool same_plan(train::RunConfig one, train::RunConfig other) {
  one.data = train::absolute_paths(one.data);
  other.data = train::absolute_paths(other.data);
  return train::fingerprint(one) == train::fingerprint(other);
}

class Session {
 public:
  Session(const ComparisonPlan& plan, const train::RunData& data, fs::path folder,
          ComparisonObserver& observer, const train::StopRequested& stop)
      : plan_(plan), data_(data), folder_(std::move(folder)), observer_(observer), stop_(stop) {}

  Comparison run();

 private:
  train::RunConfig config_of(const ComparisonRow& row, std::uint64_t seed) const;
  fs::path folder_of(const train::RunConfig& config) const;
  void refuse_other_plans() const;
  std::optional<RunResult> train_one(const train::RunConfig& config, const fs::path& folder);
  bool interrupted() const { return stop_ && stop_(); }

  const ComparisonPlan& plan_;
  const train::RunData& data_;
  fs::path folder_;
  ComparisonObserver& observer_;
  const train::StopRequested& stop_;
};

train::RunConfig Session::config_of(const ComparisonRow& row, std::uint64_t seed) const {
  train::RunConfig config = plan_.common;
  config.model.encoding = row.encoding;
  config.seed = seed;
  config.validate();
  return config;
}

fs::path Session::folder_of(const train::RunConfig& config) const {
  return folder_ / "runs" / folder_name(config.model.encoding) /
         fmt::format("seed-{}", config.seed);
}

// A mistake in the last of many runs must not show after hours: everything is checked first.
void Session::refuse_other_plans() const {
  for (const ComparisonRow& row : plan_.rows) {
    for (std::int64_t i = 0; i < plan_.seeds; ++i) {
      const auto config = config_of(row, plan_.common.seed + static_cast<std::uint64_t>(i));
      const fs::path folder = folder_of(config);
      if (!fs::exists(folder / "config.json")) continue;
      const auto present = train::RunFolder::open(folder);
      if (!same_plan(present.config(), config)) {
        throw Error(fmt::format(
            "the run in {} was begun with other data, model or recipe; compare in another folder "
            "with --out, or remove that one",
            in_quotes(folder)));
      }
      const bool finished =
          read_result(folder / "result.json", train::fingerprint(config)).has_value();
      if (!finished && !plan_.restart) present.refuse_lost_checkpoints();
    }
  }
}

std::optional<RunResult> Session::train_one(const train::RunConfig& config,
                                            const fs::path& folder) {
  reset_peak_memory(config.device);
  auto run_folder = fs::exists(folder / "config.json") ? train::RunFolder::open(folder)
                                                       : train::RunFolder::create(folder, config);
  if (plan_.restart && run_folder.lost_checkpoints()) {
    observer_.note("what the run had so far is now in " + run_folder.restart().native());
  }
  const fs::path log = run_folder.log();
  const train::RunSummary summary = train::train_in(std::move(run_folder), data_, observer_, stop_);
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
      .peak_bytes = peak_memory(config.device)};
  write_result(folder / "result.json", result, train::fingerprint(config));
  return result;
}

Comparison Session::run() {
  Comparison comparison{plan_, {}, false};
  for (const ComparisonRow& row : plan_.rows) {
    const auto config = config_of(row, plan_.common.seed);
    comparison.rows.push_back({row, nn::parameter_count(config.model)});
  }
  train::device_named(plan_.common.device);
  make_folder(folder_);
  refuse_other_plans();
  const auto total = static_cast<std::int64_t>(plan_.rows.size()) * plan_.seeds;
  std::int64_t number = 0;
  for (std::int64_t i = 0; i < plan_.seeds; ++i) {
    for (RowResult& row : comparison.rows) {
      const auto config = config_of(row.row, plan_.common.seed + static_cast<std::uint64_t>(i));
      const fs::path folder = folder_of(config);
      auto result = read_result(folder / "result.json", train::fingerprint(config));
      observer_.run_begins(config.model.encoding, config.seed, ++number, total, result.has_value());
      if (!result && !interrupted()) result = train_one(config, folder);
      if (!result) {
        write_reports(comparison, folder_);
        return comparison;
      }
      result->epochs = train::read_log(folder / "log.jsonl").epochs;
      observer_.run_ended(config.model.encoding, *result);
      row.runs.push_back(std::move(*result));
      comparison.finished = number == total;
      write_reports(comparison, folder_);
    }
  }
  return comparison;
}

}  // namespace

Comparison run_comparison(const ComparisonPlan& plan, const train::RunData& data,
                          const fs::path& folder, ComparisonObserver& observer,
                          const train::StopRequested& stop) {
  return Session(plan, data, folder, observer, stop).run();
}

}  // namespace sape2::study
