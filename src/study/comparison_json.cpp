#include "sape2/study/comparison_report.h"
#include "sape2/train/task.h"

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

}  // namespace

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
