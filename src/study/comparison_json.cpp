#include "sape2/base/error.h"
#include "sape2/study/comparison_report.h"
#include "sape2/train/task.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::study {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Spread& spread) {
  return {{"mean", spread.mean},
          {"deviation", spread.deviation ? Json(*spread.deviation) : Json(nullptr)}};
}

Json json_of(const std::optional<double>& figure) {
  return figure ? Json(*figure) : Json(nullptr);
}

// In %, by the names of tables.
void add_figures(Json& json, const train::Figures& figures) {
  for (const train::Figure& figure : figures) {
    json[train::figure_name(figure.key)] = 100 * figure.value;
  }
}

void add_test(Json& json, const train::TestRecord& test) {
  json["test_loss"] = test.loss;
  add_figures(json, test.figures);
}

Json json_of(const RunResult& run) {
  Json epochs = Json::array();
  for (const train::EpochRecord& record : run.epochs) {
    Json epoch{{"epoch", record.epoch}, {"train_loss", record.train_loss}};
    if (record.test) add_test(epoch, *record.test);
    epochs.push_back(std::move(epoch));
  }
  Json json{{"seed", run.seed}};
  add_figures(json, run.figures);
  json["loss"] = run.loss;
  const std::string main = run.figures.empty() ? "" : run.figures.front().key;
  json["best " + train::figure_name(main)] = 100 * run.best;
  json["seconds"] = run.seconds;
  json["images/s"] = run.images_per_second;
  json["peak bytes"] = run.peak_bytes;
  json["epochs"] = std::move(epochs);
  if (run.start) add_test(json["start"], *run.start);
  return json;
}

Json json_of(const train::RecipeValue& value) {
  return std::visit([](const auto& x) { return Json(x); }, value);
}

Json json_of(const Settings& settings) {
  Json json = Json::object();
  for (const Setting& setting : settings) json[setting.key] = json_of(setting.value);
  return json;
}

Json json_of(const TuningPlan& tuning) {
  Json axes = Json::object();
  for (const TuningAxis& axis : tuning.axes) {
    for (const auto& value : axis.values) axes[axis.key].push_back(json_of(value));
  }
  return {{"epochs", tuning.epochs}, {"held out", tuning.held_out}, {"axes", std::move(axes)}};
}

Json json_of(const Trial& trial, const std::string& figure) {
  Json json{{"settings", json_of(trial.settings)}};
  if (!trial.failure.empty()) {
    json["failure"] = trial.failure;
  } else {
    json[figure] = 100 * trial.score;
    json["loss"] = trial.loss;
  }
  return json;
}

Json json_of(const BaselineDifference& difference) {
  const auto& interval = difference.difference.interval;
  return {{"seeds", difference.seeds},
          {"points", difference.points},
          {"mean", difference.difference.mean},
          {"interval", interval ? Json{interval->low, interval->high} : Json(nullptr)}};
}

using Definitions = std::vector<train::FigureDefinition>;

Json json_of(const RowResult& row, const Definitions& figures) {
  Json runs = Json::array();
  for (const RunResult& run : row.runs) runs.push_back(json_of(run));
  Json json{{"encoding", row.row.encoding.to_string()},
            {"note", row.row.note},
            {"parameters", row.parameters}};
  for (const auto& figure : figures) {
    json[figure.name] = json_of(spread_of(percentages(row, figure.key)));
  }
  json["paper"] = {{"top-1", json_of(row.row.published.top1)},
                   {"top-5", json_of(row.row.published.top5)}};
  if (!row.chosen.empty()) json["chosen"] = json_of(row.chosen);
  for (const Trial& trial : row.trials) {
    json["trials"].push_back(json_of(trial, figures.front().name));
  }
  for (const FailedRun& run : row.failed) {
    json["failed"].push_back({{"seed", run.seed}, {"reason", run.reason}});
  }
  json["runs"] = std::move(runs);
  return json;
}

// Of a figure in %.
double share_from(const Json& json) {
  return json.get<double>() / 100;
}

std::optional<double> figure_from(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

train::Figures figures_from(const Json& json, const Definitions& figures) {
  train::Figures found;
  for (const auto& figure : figures) {
    found.push_back({figure.key, share_from(json.at(figure.name))});
  }
  return found;
}

train::TestRecord test_from(const Json& json, const Definitions& figures) {
  return {json.at("test_loss"), figures_from(json, figures)};
}

train::EpochRecord epoch_from(const Json& json, const Definitions& figures) {
  train::EpochRecord record{.epoch = json.at("epoch"), .train_loss = json.at("train_loss")};
  if (json.contains("test_loss")) record.test = test_from(json, figures);
  return record;
}

RunResult run_from(const Json& json, const Definitions& figures) {
  RunResult run{.seed = json.at("seed"),
                .figures = figures_from(json, figures),
                .loss = json.at("loss"),
                .best = share_from(json.at("best " + figures.front().name)),
                .seconds = json.at("seconds"),
                .images_per_second = json.at("images/s"),
                .peak_bytes = json.at("peak bytes")};
  for (const Json& epoch : json.at("epochs")) run.epochs.push_back(epoch_from(epoch, figures));
  if (json.contains("start")) run.start = test_from(json.at("start"), figures);
  return run;
}

train::RecipeValue value_from(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  return json.get<std::string>();
}

// A number without a fraction may stand for a value that takes fractions.
Setting setting_from(const std::string& key, const Json& json) {
  train::Recipe recipe;
  const train::RecipeField& field = train::recipe_field(key, "");
  field.set(recipe, value_from(json), "");
  return {key, field.get(recipe)};
}

Settings settings_from(const Json& json) {
  Settings settings;
  for (const auto& item : json.items()) settings.push_back(setting_from(item.key(), item.value()));
  return settings;
}

TuningPlan tuning_from(const Json& json) {
  TuningPlan tuning{.epochs = json.at("epochs"), .held_out = json.at("held out")};
  for (const auto& item : json.at("axes").items()) {
    tuning.axes.push_back({item.key(), {}});
    for (const Json& value : item.value()) {
      tuning.axes.back().values.push_back(setting_from(item.key(), value).value);
    }
  }
  return tuning;
}

Trial trial_from(const Json& json, const std::string& figure) {
  Trial trial{settings_from(json.at("settings"))};
  if (json.contains("failure")) {
    trial.failure = json.at("failure");
  } else {
    trial.score = share_from(json.at(figure));
    trial.loss = json.at("loss");
  }
  return trial;
}

// Older files have the number of seeds, which follow that of the configuration.
std::vector<std::uint64_t> seeds_from_json(const Json& json, std::uint64_t first) {
  if (json.is_array()) return json.get<std::vector<std::uint64_t>>();
  return seeds_from(first, json.get<std::int64_t>());
}

RowResult row_from(const Json& json, const Definitions& figures) {
  RowResult row;
  row.row.encoding = nn::EncodingSpec::parse(json.at("encoding").get<std::string>());
  row.row.note = json.at("note");
  row.row.published = {figure_from(json.at("paper").at("top-1")),
                       figure_from(json.at("paper").at("top-5"))};
  row.parameters = json.at("parameters");
  for (const Json& run : json.at("runs")) row.runs.push_back(run_from(run, figures));
  if (json.contains("chosen")) row.chosen = settings_from(json.at("chosen"));
  if (json.contains("trials")) {
    for (const Json& trial : json.at("trials")) {
      row.trials.push_back(trial_from(trial, figures.front().name));
    }
  }
  if (json.contains("failed")) {
    for (const Json& run : json.at("failed")) {
      row.failed.push_back({run.at("seed"), run.at("reason")});
    }
  }
  return row;
}

}  // namespace

Comparison comparison_from_json(std::string_view text, std::string_view source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    Comparison comparison;
    ComparisonPlan& plan = comparison.plan;
    plan.model = json.at("model");
    plan.recipe = json.at("recipe");
    plan.common = train::run_config_from_json(json.at("configuration").dump(), source);
    for (const Json& row : json.at("rows")) {
      comparison.rows.push_back(row_from(row, figures_of(comparison)));
      plan.rows.push_back(comparison.rows.back().row);
    }
    plan.seeds = seeds_from_json(json.at("seeds"), plan.common.seed);
    if (json.contains("tuning")) plan.tuning = tuning_from(json.at("tuning"));
    if (json.contains("baseline")) {
      plan.baseline = nn::EncodingSpec::parse(json.at("baseline").get<std::string>());
    }
    comparison.finished = json.at("finished");
    return comparison;
  } catch (const Json::exception&) {
    throw Error(fmt::format(
        "{}: this is no results.json of a comparison; give one that `sape2 compare` wrote",
        source));
  }
}

std::string json_report(const Comparison& comparison) {
  Json rows = Json::array();
  const auto differences = baseline_differences(comparison);
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    rows.push_back(json_of(comparison.rows[i], figures_of(comparison)));
    if (differences[i]) rows.back()["difference"] = json_of(*differences[i]);
    for (const auto& figure : figures_of(comparison)) {
      if (!figure.compared) continue;
      const auto of_this = baseline_differences(comparison, figure.key);
      if (of_this[i]) rows.back()[figure.name + " difference"] = json_of(*of_this[i]);
    }
  }
  const ComparisonPlan& plan = comparison.plan;
  Json json{{"caption", report_caption(comparison)},
            {"verdict", report_verdict(comparison)},
            {"finished", comparison.finished},
            {"model", plan.model},
            {"recipe", plan.recipe},
            {"seeds", plan.seeds},
            {"configuration", Json::parse(train::to_json(plan.common))}};
  if (plan.tuning) json["tuning"] = json_of(*plan.tuning);
  if (plan.baseline) json["baseline"] = plan.baseline->to_string();
  json["rows"] = std::move(rows);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sape2::study
