#include "sape2/base/error.h"
#include "sape2/study/comparison_report.h"

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

// Of a figure in %.
double share_from(const Json& json) {
  return json.get<double>() / 100;
}

std::optional<double> figure_from(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

train::EpochRecord epoch_from(const Json& json) {
  train::EpochRecord record{.epoch = json.at("epoch"), .train_loss = json.at("train_loss")};
  if (json.contains("top-1")) {
    record.test = train::TestRecord{.loss = json.at("test_loss"),
                                    .top1 = share_from(json.at("top-1")),
                                    .top5 = share_from(json.at("top-5"))};
  }
  return record;
}

RunResult run_from(const Json& json) {
  RunResult run{.seed = json.at("seed"),
                .top1 = share_from(json.at("top-1")),
                .top5 = share_from(json.at("top-5")),
                .loss = json.at("loss"),
                .best_top1 = share_from(json.at("best top-1")),
                .seconds = json.at("seconds"),
                .images_per_second = json.at("images/s"),
                .peak_bytes = json.at("peak bytes")};
  for (const Json& epoch : json.at("epochs")) run.epochs.push_back(epoch_from(epoch));
  return run;
}

RowResult row_from(const Json& json) {
  RowResult row;
  row.row.encoding = nn::EncodingSpec::parse(json.at("encoding").get<std::string>());
  row.row.note = json.at("note");
  row.row.published = {figure_from(json.at("paper").at("top-1")),
                       figure_from(json.at("paper").at("top-5"))};
  row.parameters = json.at("parameters");
  for (const Json& run : json.at("runs")) row.runs.push_back(run_from(run));
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
    plan.seeds = json.at("seeds");
    for (const Json& row : json.at("rows")) {
      comparison.rows.push_back(row_from(row));
      plan.rows.push_back(comparison.rows.back().row);
    }
    plan.common = train::run_config_from_json(json.at("configuration").dump(), source);
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
  for (const RowResult& row : comparison.rows) rows.push_back(json_of(row));
  const ComparisonPlan& plan = comparison.plan;
  const Json json{{"caption", report_caption(comparison)},
                  {"verdict", report_verdict(comparison)},
                  {"finished", comparison.finished},
                  {"model", plan.model},
                  {"recipe", plan.recipe},
                  {"seeds", plan.seeds},
                  {"configuration", Json::parse(train::to_json(plan.common))},
                  {"rows", std::move(rows)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sape2::study
