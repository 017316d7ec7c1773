#include "sape2/study/comparison_report.h"

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

void add_test(Json& json, const train::TestRecord& test) {
  json["test_loss"] = test.loss;
  json["top-1"] = 100 * test.top1;
  json["top-5"] = 100 * test.top5;
}

Json json_of(const RunResult& run) {
  Json epochs = Json::array();
  for (const train::EpochRecord& record : run.epochs) {
    Json epoch{{"epoch", record.epoch}, {"train_loss", record.train_loss}};
    if (record.test) add_test(epoch, *record.test);
    epochs.push_back(std::move(epoch));
  }
  Json json{{"seed", run.seed},
            {"top-1", 100 * run.top1},
            {"top-5", 100 * run.top5},
            {"loss", run.loss},
            {"best top-1", 100 * run.best_top1},
            {"seconds", run.seconds},
            {"images/s", run.images_per_second},
            {"peak bytes", run.peak_bytes},
            {"epochs", std::move(epochs)}};
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

Json json_of(const Trial& trial) {
  Json json{{"settings", json_of(trial.settings)}};
  if (!trial.failure.empty()) {
    json["failure"] = trial.failure;
  } else {
    json["top-1"] = 100 * trial.top1;
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

Json json_of(const RowResult& row) {
  std::vector<double> top1, top5;
  Json runs = Json::array();
  for (const RunResult& run : row.runs) {
    top1.push_back(100 * run.top1);
    top5.push_back(100 * run.top5);
    runs.push_back(json_of(run));
  }
  Json json{
      {"encoding", row.row.encoding.to_string()},
      {"note", row.row.note},
      {"parameters", row.parameters},
      {"top-1", json_of(spread_of(top1))},
      {"top-5", json_of(spread_of(top5))},
      {"paper",
       {{"top-1", json_of(row.row.published.top1)}, {"top-5", json_of(row.row.published.top5)}}}};
  if (!row.chosen.empty()) json["chosen"] = json_of(row.chosen);
  for (const Trial& trial : row.trials) json["trials"].push_back(json_of(trial));
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
    rows.push_back(json_of(comparison.rows[i]));
    if (differences[i]) rows.back()["difference"] = json_of(*differences[i]);
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
