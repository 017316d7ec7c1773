// results.json may come from another machine, or from anybody: each figure has to be one that a
// training can have, and what is counted has to be there once.
#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/study/comparison_report.h"

#include "nn/json_reader.h"

#include <fmt/format.h>

#include <limits>
#include <set>

namespace sape2::study {
namespace {

using nn::Json;
using nn::JsonReader;

constexpr double kAllPercent = 100;
constexpr double kLargestLoss = std::numeric_limits<float>::max();
constexpr double kMostSeconds = 1e12, kLargestRate = 1e15;
constexpr std::int64_t kMostListedSeeds = 1000;  // where a file has their number alone

const Json& list_in(JsonReader& read, const std::string& key) {
  const Json& list = read.at(key);
  if (!list.is_array()) read.wrong(key, list, "a list");
  return list;
}

double share_in(JsonReader& read, const std::string& key) {
  return read.number_between(key, 0, kAllPercent, "a number from 0 to 100") / kAllPercent;
}

double loss_in(JsonReader& read, const std::string& key) {
  return read.number_between(key, 0, kLargestLoss, "a number that a loss can be");
}

std::int64_t whole_in(JsonReader& read, const std::string& key) {
  const std::int64_t value = read.integer(key);
  if (value < 0) read.wrong(key, read.at(key), "a whole number from 0");
  return value;
}

std::int64_t positive_in(JsonReader& read, const std::string& key) {
  const std::int64_t value = read.count(key);
  if (value == 0) read.wrong(key, read.at(key), "a whole number from 1");
  return value;
}

std::optional<double> published_in(JsonReader& read, const std::string& key) {
  if (read.at(key).is_null()) return std::nullopt;
  return read.number_between(key, 0, kAllPercent, "a number from 0 to 100 or null");
}

using Definitions = std::vector<train::FigureDefinition>;

train::Figures figures_in(JsonReader& read, const Definitions& figures) {
  train::Figures found;
  for (const auto& figure : figures) found.push_back({figure.key, share_in(read, figure.name)});
  return found;
}

train::TestRecord test_in(JsonReader& read, const Definitions& figures) {
  return {.loss = loss_in(read, "test_loss"), .figures = figures_in(read, figures)};
}

train::EpochRecord epoch_from(const Json& json, const std::string& where,
                              const Definitions& figures) {
  JsonReader read(json, where);
  train::EpochRecord record{.epoch = read.count("epoch"),
                            .train_loss = loss_in(read, "train_loss")};
  if (json.contains("test_loss")) record.test = test_in(read, figures);
  return record;
}

RunResult run_from(const Json& json, const std::string& where, const Definitions& figures) {
  JsonReader read(json, where);
  RunResult run{
      .seed = read.natural("seed"),
      .figures = figures_in(read, figures),
      .loss = loss_in(read, "loss"),
      .best = share_in(read, "best " + figures.front().name),
      .seconds = read.number_between("seconds", 0, kMostSeconds, "a time"),
      .images_per_second = read.number_between("images/s", 0, kLargestRate, "a number from 0"),
      .peak_bytes = whole_in(read, "peak bytes")};
  for (const Json& epoch : list_in(read, "epochs")) {
    run.epochs.push_back(epoch_from(epoch, where, figures));
  }
  if (json.contains("start")) {
    JsonReader start(read.at("start"), where + "'s \"start\"");
    run.start = test_in(start, figures);
  }
  return run;
}

train::RecipeValue value_from(const Json& json, const std::string& key) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
    throw Error(key + " has a number that is too large");
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  throw Error(key + " is not a single value");
}

// A number without a fraction may stand for a value that takes fractions.
Setting setting_from(const std::string& key, const Json& json) {
  train::Recipe recipe;
  const train::RecipeField& field = train::recipe_field(key, "");
  field.set(recipe, value_from(json, field.key), "");
  return {key, field.get(recipe)};
}

Settings settings_in(JsonReader& read, const std::string& key) {
  const Json& json = read.at(key);
  if (!json.is_object()) read.wrong(key, json, "values of the recipe");
  Settings settings;
  for (const auto& item : json.items()) settings.push_back(setting_from(item.key(), item.value()));
  return settings;
}

TuningPlan tuning_from(const Json& json) {
  JsonReader read(json, "its tuning");
  TuningPlan tuning{.epochs = positive_in(read, "epochs"),
                    .held_out = positive_in(read, "held out")};
  const Json& axes = read.at("axes");
  if (!axes.is_object()) read.wrong("axes", axes, "values of the recipe, each with a list");
  for (const auto& item : axes.items()) {
    if (!item.value().is_array()) read.wrong("axes", axes, "a list of values for each");
    tuning.axes.push_back({item.key(), {}});
    for (const Json& value : item.value()) {
      tuning.axes.back().values.push_back(setting_from(item.key(), value).value);
    }
  }
  tuning.grid();  // refuses one that is too large
  return tuning;
}

Trial trial_from(const Json& json, const std::string& where, const std::string& figure) {
  JsonReader read(json, where);
  Trial trial{settings_in(read, "settings")};
  if (json.contains("failure")) {
    trial.failure = read.text("failure");
  } else {
    trial.score = share_in(read, figure);
    trial.loss = loss_in(read, "loss");
  }
  return trial;
}

void add_once(std::set<std::uint64_t>& seeds, std::uint64_t seed, const std::string& where) {
  if (!seeds.insert(seed).second) throw Error(fmt::format("{} has seed {} twice", where, seed));
}

// Older files have the number of seeds, which follow that of the configuration.
std::vector<std::uint64_t> seeds_in(JsonReader& read, std::uint64_t first) {
  constexpr const char* kKey = "seeds";
  const Json& json = read.at(kKey);
  if (!json.is_array()) {
    const std::int64_t count = positive_in(read, kKey);
    if (count > kMostListedSeeds) read.wrong(kKey, json, "a smaller number");
    return seeds_from(first, count);
  }
  if (json.empty()) read.wrong(kKey, json, "at least one");
  const auto list =
      read.list<std::uint64_t>(kKey, &Json::is_number_unsigned, "whole numbers from 0");
  std::set<std::uint64_t> seen;
  for (const std::uint64_t seed : list) add_once(seen, seed, "it");
  return list;
}

RowResult row_from(const Json& json, const std::string& where, const Definitions& figures) {
  JsonReader read(json, where);
  RowResult row;
  row.row.encoding = nn::EncodingSpec::parse(read.text("encoding"));
  row.row.note = read.text("note");
  JsonReader paper(read.at("paper"), where + "'s \"paper\"");
  row.row.published = {published_in(paper, "top-1"), published_in(paper, "top-5")};
  row.parameters = whole_in(read, "parameters");
  std::set<std::uint64_t> seeds;
  for (const Json& run : list_in(read, "runs")) {
    row.runs.push_back(run_from(run, "a run of " + where, figures));
    add_once(seeds, row.runs.back().seed, where);
  }
  if (json.contains("chosen")) row.chosen = settings_in(read, "chosen");
  if (json.contains("trials")) {
    for (const Json& trial : list_in(read, "trials")) {
      row.trials.push_back(trial_from(trial, "a trial of " + where, figures.front().name));
    }
  }
  if (json.contains("failed")) {
    for (const Json& run : list_in(read, "failed")) {
      JsonReader failed(run, "a failed run of " + where);
      row.failed.push_back({failed.natural("seed"), failed.text("reason")});
      add_once(seeds, row.failed.back().seed, where);
    }
  }
  return row;
}

Comparison comparison_from(const Json& json) {
  JsonReader read(json, "it");
  Comparison comparison;
  ComparisonPlan& plan = comparison.plan;
  plan.model = read.text("model");
  plan.recipe = read.text("recipe");
  plan.common = train::run_config_from_json(read.at("configuration").dump(), "configuration");
  const Json& rows = list_in(read, "rows");
  if (rows.empty()) throw Error("it has no rows");
  std::set<std::string> encodings;
  for (const Json& json_row : rows) {
    const std::string where = fmt::format("row {}", comparison.rows.size() + 1);
    comparison.rows.push_back(row_from(json_row, where, figures_of(comparison)));
    plan.rows.push_back(comparison.rows.back().row);
    const std::string encoding = plan.rows.back().encoding.to_string();
    if (!encodings.insert(encoding).second) throw Error("it has " + encoding + " twice");
  }
  plan.seeds = seeds_in(read, plan.common.seed);
  if (json.contains("tuning")) plan.tuning = tuning_from(read.at("tuning"));
  if (json.contains("baseline")) plan.baseline = nn::EncodingSpec::parse(read.text("baseline"));
  comparison.finished = read.flag("finished");
  return comparison;
}

}  // namespace

Comparison comparison_from_json(std::string_view text, std::string_view source) {
  try {
    return comparison_from(nn::parse_json(text, "it"));
  } catch (const Error& error) {
    throw Error(fmt::format(
        "{}: this is no results.json of a comparison: {}; give one that `sape2 compare` wrote",
        in_quotes(source), error.what()));
  }
}

}  // namespace sape2::study
