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

Json json_of(const RunResult& run) {
  Json epochs = Json::array();
  for (const train::EpochRecord& record : run.epochs) {
    Json epoch{{"epoch", record.epoch}, {"train_loss", record.train_loss}};
    if (record.test) {
      epoch["test_loss"] = record.test->loss;
      epoch["top-1"] = 100 * record.test->top1;
      epoch["top-5"] = 100 * record.test->top5;
    }
    epochs.push_back(std::move(epoch));
  }
  return {{"seed", run.seed},
          {"top-1", 100 * run.top1},
          {"top-5", 100 * run.top5},
          {"loss", run.loss},
          {"best top-1", 100 * run.best_top1},
          {"seconds", run.seconds},
          {"images/s", run.images_per_second},
          {"peak bytes", run.peak_bytes},
          {"epochs", std::move(epochs)}};
}

Json json_of(const RowResult& row) {
  std::vector<double> top1, top5;
  Json runs = Json::array();
  for (const RunResult& run : row.runs) {
    top1.push_back(100 * run.top1);
    top5.push_back(100 * run.top5);
    runs.push_back(json_of(run));
  }
  return {
      {"encoding", row.row.encoding.to_string()},
      {"note", row.row.note},
      {"parameters", row.parameters},
      {"top-1", json_of(spread_of(top1))},
      {"top-5", json_of(spread_of(top5))},
      {"paper",
       {{"top-1", json_of(row.row.published.top1)}, {"top-5", json_of(row.row.published.top5)}}},
      {"runs", std::move(runs)}};
}

}  // namespace

std::string json_report(const Comparison& comparison) {
  Json rows = Json::array();
  for (const RowResult& row : comparison.rows) rows.push_back(json_of(row));
  const ComparisonPlan& plan = comparison.plan;
  const Json json{{"caption", report_caption(comparison)},
                  {"finished", comparison.finished},
                  {"model", plan.model},
                  {"recipe", plan.recipe},
                  {"seeds", plan.seeds},
                  {"configuration", Json::parse(train::to_json(plan.common))},
                  {"rows", std::move(rows)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sape2::study
